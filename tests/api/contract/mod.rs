//! The contract: what the served OpenAPI document says holds when it is tried. Operations and schemas have names of their
//! own, examples work when they are sent as printed, bounds are where they are said to be, and so are objects and names.

mod bounds;
mod examples;
mod names;
mod shapes;

use axum::body::Body;
use axum::http::{Method, Request};
use jsonschema::{Draft, Validator};
use serde_json::{Map, Value};

use crate::support::{Service, encoded, request};

/// The OpenAPI document, as served.
struct Contract {
    document: Value,
}

/// An operation of the document.
struct Operation<'a> {
    contract: &'a Contract,
    id: &'a str,
    method: Method,
    path: &'a str,
    value: &'a Value,
}

/// What an operation is sent: the values of its parameters, and a body.
#[derive(Clone, Default)]
struct Call {
    /// Where each parameter stands (`path`, `query` or `header`), its name, and its value.
    parameters: Vec<(String, String, String)>,
    /// The body, and its media type.
    body: Option<(String, Value)>,
}

impl Contract {
    async fn of(service: &Service) -> Self {
        Self { document: service.get("/openapi.json").await.expect(200) }
    }

    /// Every operation, in the order of the document.
    fn operations(&self) -> Vec<Operation<'_>> {
        let paths = self.document["paths"].as_object().expect("paths");
        let operations = paths.iter().flat_map(|(path, item)| {
            item.as_object().expect("a path").iter().map(move |(method, value)| Operation {
                contract: self,
                id: value["operationId"].as_str().expect("an operation id"),
                method: method.to_uppercase().parse().expect("a method"),
                path,
                value,
            })
        });
        operations.collect()
    }

    /// What a value stands for: itself, or what it refers to.
    fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(reference) => {
                let target = self.document.pointer(reference.trim_start_matches('#'));
                self.resolve(target.unwrap_or_else(|| panic!("{reference} leads nowhere")))
            }
            None => value,
        }
    }

    /// What tells whether a value is what a schema of the document says.
    fn validator(&self, schema: &Value) -> Validator {
        let mut whole = schema.clone();
        whole["components"] = self.document["components"].clone();
        let options = jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(true);
        options.build(&whole).expect("a schema")
    }

    /// Asserts that a value is what a schema of the document says.
    #[track_caller]
    fn assert_valid(&self, schema: &Value, value: &Value, what: &str) {
        let validator = self.validator(schema);
        let errors: Vec<_> = validator
            .iter_errors(value)
            .map(|error| format!("{error} at {:?}", error.instance_path().to_string()))
            .collect();
        assert!(errors.is_empty(), "{what}: {errors:#?}\n{value:#}");
    }
}

impl Operation<'_> {
    fn parameters(&self) -> impl Iterator<Item = &Value> {
        self.value["parameters"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|parameter| self.contract.resolve(parameter))
    }

    /// The media types of the body that it takes, with what is said of each.
    fn bodies(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.contract.resolve(&self.value["requestBody"])["content"].as_object().into_iter().flatten()
    }

    /// The calls that the document prints: one for each example of a body, each with the examples of the parameters.
    fn examples(&self) -> Vec<Call> {
        let printed = self.parameters().filter(|parameter| !parameter["example"].is_null());
        let parameters: Vec<_> = printed
            .map(|parameter| {
                let text = |member: &Value| match member {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                (text(&parameter["in"]), text(&parameter["name"]), text(&parameter["example"]))
            })
            .collect();
        let with_body = |body| Call { parameters: parameters.clone(), body };
        let bodies: Vec<_> = self
            .bodies()
            .flat_map(|(media_type, content)| {
                let several = content["examples"].as_object().into_iter().flatten();
                let values = several.map(|(_, example)| &example["value"]).chain(content.get("example"));
                values.map(|value| with_body(Some((media_type.clone(), value.clone()))))
            })
            .collect();
        if self.value["requestBody"].is_null() { vec![with_body(None)] } else { bodies }
    }

    /// The request that a call makes of this operation.
    fn request(&self, call: &Call, key: &str) -> Request<Body> {
        let (mut path, mut query) = (self.path.to_owned(), Vec::new());
        for (place, name, value) in &call.parameters {
            match place.as_str() {
                "path" => path = path.replace(&format!("{{{name}}}"), &encoded(value)),
                "query" => query.push(format!("{name}={}", encoded(value))),
                _ => {}
            }
        }
        if !query.is_empty() {
            path = format!("{path}?{}", query.join("&"));
        }
        let mut request =
            request(self.method.clone(), &path).header("authorization", format!("Bearer {key}"));
        for (_, name, value) in call.parameters.iter().filter(|(place, ..)| place == "header") {
            request = request.header(name, value);
        }
        let body = match &call.body {
            None => Body::empty(),
            Some((media_type, value)) => {
                request = request.header("content-type", media_type);
                Body::from(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            }
        };
        request.body(body).expect("a request")
    }
}

/// The members of a JSON object; none of anything else.
fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}
