//! What the documentation and the command line say of data sets.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::Service;

/// The data sets as the service lists them: name and formats.
async fn listed(service: &Service) -> Vec<(String, Vec<Value>)> {
    let list = service.get("/v1/exports").await.expect(200);
    let sets = list["data"].as_array().expect("data").iter();
    let of = |set: &Value| {
        let formats = set["formats"].as_array().expect("formats").clone();
        (set["dataset"].as_str().expect("a name").to_owned(), formats)
    };
    sets.map(of).collect()
}

#[tokio::test]
async fn the_document_names_every_format_and_media_type_of_every_data_set() {
    let service = Service::open().await;
    let document = service.get("/openapi.json").await.expect(200);
    for (name, formats) in listed(&service).await {
        let path = format!("/v1/exports/{name}");
        let operation = &document["paths"][&path]["get"];
        assert_eq!(operation["operationId"], format!("export_{}", name.replace('-', "_")));
        let parameters = operation["parameters"].as_array().expect("parameters");
        let format = parameters.iter().find(|parameter| parameter["name"] == "format").expect("format");
        let schema = json!({"type": "string", "enum": formats, "default": formats[0]});
        assert_eq!(format["schema"], schema, "{name}");
        let description = operation["description"].as_str().expect("a description");
        let documented = operation["responses"]["200"]["content"].as_object().expect("media types");
        for format in &formats {
            let format = format.as_str().expect("a name");
            assert!(description.contains(&format!("`{format}`")), "{name}: {description}");
            let answer = service.get(&format!("{path}?format={format}")).await;
            let media_type =
                answer.header("content-type").and_then(|it| it.split(';').next()).expect("a type");
            assert_eq!(documented[media_type], json!({"schema": {"type": "string"}}), "{name} {format}");
        }
        for (ending, media_type) in [("jsonl", "application/x-ndjson"), ("jsonl.gz", "application/gzip")] {
            let answer = service.get(&format!("{path}.{ending}?format=raw")).await;
            assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, Some(media_type)));
        }
    }
}

#[tokio::test]
async fn the_command_line_has_every_data_set_with_its_formats_and_no_others() {
    let export = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gleaner"));
        command.arg("export").args(arguments).output().expect("it runs")
    };
    let sets = listed(&Service::open().await).await;
    for (name, formats) in &sets {
        let output = export(&[name, "--format", "none-of-them"]);
        assert_eq!(output.status.code(), Some(2));
        let formats: Vec<_> = formats.iter().map(|format| format.as_str().expect("a name")).collect();
        let refusal = String::from_utf8(output.stderr).expect("text");
        assert!(refusal.contains(&format!("[possible values: {}]", formats.join(", "))), "{refusal}");
    }
    let help = String::from_utf8(export(&["--help"]).stdout).expect("text");
    for (name, _) in &sets {
        assert!(help.contains(&format!("\n  {name} ")), "{help}");
    }
}
