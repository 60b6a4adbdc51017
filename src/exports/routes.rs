//! The endpoints of exports: the list of data sets, and each data set under its name and as a file.

use std::task::Poll;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use clap::ValueEnum;
use serde::Serialize;
use tokio::sync::mpsc;
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem, PathsBuilder,
};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{ContentBuilder, HeaderBuilder, Ref, RefOr, ResponseBuilder, ResponsesBuilder, Schema};
use utoipa::{IntoParams as _, PartialSchema as _, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::compress::{Coding, compress};
use super::count::{Summary, summaries};
use super::datasets::{self, AnyDataset, Entry};
use super::export;
use super::format::Format;
use super::params::{COMMON, Common, Dedupe, redact};
use super::profile::Report;
use crate::auth::{Caller, Read};
use crate::error::{Error, Refusals, Result};
use crate::http::line;
use crate::http::memory::Memory;
use crate::http::params::{from_pairs, query_pairs};
use crate::privacy::redact::{Redaction, Texts};
use crate::state::App;

/// Returns the endpoints of exports.
pub fn routes() -> OpenApiRouter<App> {
    datasets::ALL.iter().fold(OpenApiRouter::new().routes(routes!(list_datasets)), |router, entry| {
        let path = format!("/v1/exports/{}", entry.description.name);
        let get = |zipped| {
            axum::routing::get(
                move |State(app): State<App>, caller: Caller<Read>, request: Request| async move {
                    export(&app, &caller, entry, request, zipped).await
                },
            )
        };
        let schema = axum::routing::get(move |_: Caller<Read>, request: Request| async move {
            let (dataset, common) = Parameters::of(&request.into_parts().0).read(entry)?;
            let schema = export::schema(&entry.description, dataset.as_ref(), &common)?;
            let no_json = || Error::invalid("/format", "the rows of this format are not JSON");
            schema.map(Json).ok_or_else(no_json)
        });
        let profile = axum::routing::get(
            move |State(app): State<App>, caller: Caller<Read>, request: Request| async move {
                profile(&app, &caller, entry, request).await.map(Json)
            },
        );
        let documented = |path: &str, operation| {
            PathsBuilder::new().path(path, PathItem::new(HttpMethod::Get, operation)).build()
        };
        let [schema_path, profile_path] = ["schema", "profile"].map(|last| format!("{path}/{last}"));
        router
            .routes((vec![], documented(&path, operation(entry)), get(false)))
            .routes((vec![], documented(&schema_path, schema_operation(entry)), schema))
            .routes((profile_schemas(), documented(&profile_path, profile_operation(entry)), profile))
            .route(&format!("{path}.jsonl"), get(false))
            .route(&format!("{path}.jsonl.gz"), get(true))
    })
}

/// The documentation of a data set's endpoint.
fn operation(entry: &Entry) -> Operation {
    let name = entry.description.name;
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let content = || ContentBuilder::new().schema(Some(text().build())).build();
    let header = |description: &str| {
        HeaderBuilder::new().schema(Some(text().build())).description(Some(description)).build()
    };
    let rows = ResponseBuilder::new()
        .description("One row per line")
        .header("Gleaner-As-Of", header("The time whose state of the data is exported"))
        .header("Gleaner-Next-Cursor", header("The cursor of the next part, if there is more to export"))
        .header(
            "Gleaner-Dropped",
            header("The number of rows left out of this part of a split because their texts are also in another part"),
        );
    let media_types = entry.formats().flat_map(|format| match format.media_type() {
        None => vec!["application/x-ndjson", "application/jsonl", "text/plain"],
        Some(own) => own.split(';').take(1).collect(),
    });
    let rows = media_types.fold(rows, |rows, media_type| rows.content(media_type, content()));
    OperationBuilder::new()
        .tag("exports")
        .operation_id(Some(format!("export_{}", name.replace('-', "_"))))
        .summary(Some(entry.description.summary))
        .description(Some(format!(
            "{} The data set is also available as `/v1/exports/{name}.jsonl` and `/v1/exports/{name}.jsonl.gz`.",
            entry.documentation()
        )))
        .parameters(Some(parameters(entry, |_| true)))
        .responses(ResponsesBuilder::new().response("200", rows).responses_from_into_responses::<Refusals>())
        .build()
}

/// Returns the documented parameters of a data set whose names `wanted` accepts.
fn parameters(entry: &Entry, wanted: impl Fn(&str) -> bool) -> Vec<Parameter> {
    let split = entry.description.split;
    let mut common = Common::into_params(|| Some(ParameterIn::Query));
    common.retain(|parameter| entry.description.has_parameter(&parameter.name));
    for parameter in &mut common {
        let (values, default) = match parameter.name.as_str() {
            "format" => {
                let offered: Vec<_> = entry.formats().map(Format::name).collect();
                let default = offered.first().cloned();
                (offered, default)
            }
            "dedupe" if split.source().is_none() => (names(&[Dedupe::None, Dedupe::Exact]), None),
            "split_by" => (names(split.properties()), None),
            _ => continue,
        };
        parameter.schema = Some(one_of(values).default(default.map(Into::into)).into());
    }
    let all = common.into_iter().chain((entry.parameters)());
    all.filter(|parameter| wanted(&parameter.name)).collect()
}

/// Returns the names of values of a parameter.
fn names(values: &[impl ValueEnum]) -> Vec<String> {
    let names = values.iter().filter_map(ValueEnum::to_possible_value);
    names.map(|value| value.get_name().to_owned()).collect()
}

/// The schema of a text that is one of these.
fn one_of(values: Vec<String>) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(values))
}

/// The documentation of the schema of a data set's rows.
fn schema_operation(entry: &Entry) -> Operation {
    let name = entry.description.name;
    let object = ObjectBuilder::new().schema_type(Type::Object);
    let content = ContentBuilder::new().schema(Some(object.build())).build();
    let schema = ResponseBuilder::new().description("The JSON Schema").content("application/json", content);
    // Only these parameters change what a row looks like.
    let wanted = |name: &str| ["format", "include", "weights", "prompt", "propensities"].contains(&name);
    let of_json: Vec<_> = entry.formats().filter(|format| format.is_json()).map(Format::name).collect();
    let with_example = |parameter: Parameter| match parameter.name.as_str() {
        "format" => {
            let default = entry.formats().next().filter(|format| format.is_json()).map(Format::name);
            let schema = one_of(of_json.clone()).default(default.map(Into::into));
            let example = of_json.first().cloned().map(Into::into);
            ParameterBuilder::from(parameter).schema(Some(schema)).example(example).build()
        }
        _ => parameter,
    };
    let parameters: Vec<_> = parameters(entry, wanted).into_iter().map(with_example).collect();
    OperationBuilder::new()
        .tag("exports")
        .operation_id(Some(format!("describe_{}", name.replace('-', "_"))))
        .summary(Some(format!("Returns the JSON Schema (2020-12) of a row of {name}.")))
        .description(Some("The schema has every member that a row can have, and no others. Formats whose rows are not JSON have no schema."))
        .parameters(Some(parameters))
        .responses(ResponsesBuilder::new().response("200", schema).responses_from_into_responses::<Refusals>())
        .build()
}

/// The documentation of the profile of a data set.
fn profile_operation(entry: &Entry) -> Operation {
    let name = entry.description.name;
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(Report::name()))).build();
    let profile = ResponseBuilder::new().description("The profile").content("application/json", content);
    OperationBuilder::new()
        .tag("exports")
        .operation_id(Some(format!("profile_{}", name.replace('-', "_"))))
        .summary(Some(format!("Returns statistics of the rows of {name}: lengths, repeated texts, and shares of domains and other properties.")))
        .description(Some(
            "If there are more than 50,000 rows, a sample is read, which is chosen by a hash of the records' ids, and `sampled` is true.",
        ))
        .parameters(Some(parameters(entry, |name| !NOT_OF_PROFILES.contains(&name))))
        .responses(ResponsesBuilder::new().response("200", profile).responses_from_into_responses::<Refusals>())
        .build()
}

/// The parameters that change how rows are exported, but not which rows there are.
const NOT_OF_PROFILES: [&str; 4] = ["order", "limit", "cursor", "include"];

fn profile_schemas() -> Vec<(String, RefOr<Schema>)> {
    let mut schemas = vec![(Report::name().into_owned(), Report::schema())];
    Report::schemas(&mut schemas);
    schemas
}

/// The parameters of a request, with their names: the common ones, and the data set's own.
struct Parameters {
    common: Vec<(String, String)>,
    own: Vec<(String, String)>,
}

impl Texts for Parameters {
    fn texts(&mut self, redaction: &mut Redaction<'_>) {
        for (name, value) in &mut self.own {
            redact(name, value, redaction);
        }
    }
}

impl Parameters {
    fn of(parts: &Parts) -> Self {
        let (common, own) =
            query_pairs(parts).into_iter().partition(|(name, _)| COMMON.contains(&name.as_str()));
        Self { common, own }
    }

    fn read(&self, entry: &Entry) -> Result<(AnyDataset, Common)> {
        let common = from_pairs(&self.common)?;
        Ok(((entry.from_query)(&self.own)?, common))
    }
}

/// Makes the profile of a data set. The default is the first format other than `raw`, because rows in the format
/// `raw` have no question and no answer.
async fn profile(app: &App, caller: &Caller<Read>, entry: &Entry, request: Request) -> Result<Report> {
    let (parts, _) = request.into_parts();
    let (parameters, _) = caller.tenant.redacted(Parameters::of(&parts)).await;
    let (dataset, mut common) = parameters.read(entry)?;
    let told = entry.formats().find(|format| *format != Format::Raw);
    common.format = common.format.or(told);
    let memory = Memory::of(&parts.extensions);
    memory.leave();
    app.exports.profile(&caller.project, &entry.description, dataset, common, &memory).await
}

/// The data sets of a project.
#[derive(Serialize, ToSchema)]
struct DatasetList {
    /// The data sets, in a fixed order.
    data: Vec<Summary>,
}

/// Lists the data sets with their formats, their number of rows, and the number of records left out because their
/// text was not stored.
///
/// Data sets of up to 5,000 records are counted exactly. For larger ones the number is estimated from a sample:
/// `rows_estimated` is then true, and `rows` is usually within 10 % of the exact number.
#[utoipa::path(get, path = "/v1/exports", tag = "exports",
    responses((status = 200, description = "The data sets", body = DatasetList), Refusals))]
async fn list_datasets(State(app): State<App>, caller: Caller<Read>) -> Result<Json<DatasetList>> {
    let data = summaries(&app.db, &caller.project).await?;
    Ok(Json(DatasetList { data }))
}

/// Streams a data set. A `zipped` one is a compressed file, and not a body that is compressed for the transfer.
async fn export(
    app: &App,
    caller: &Caller<Read>,
    entry: &Entry,
    request: Request,
    zipped: bool,
) -> Result<Response> {
    let (parts, _) = request.into_parts();
    let (parameters, _) = caller.tenant.redacted(Parameters::of(&parts)).await;
    let (dataset, common) = parameters.read(entry)?;
    // The export itself takes turns.
    let memory = Memory::of(&parts.extensions);
    memory.leave();
    let (export, place) = app.exports.prepare(&caller.project, &entry.description, dataset, common).await?;
    let as_of = export.as_of().to_string();
    let next_cursor = export.next_cursor.clone();
    let dropped = export.dropped;
    let own = export.media_type();
    let (sender, mut chunks) = mpsc::channel(4);
    tokio::spawn(app.exports.clone().run(export, sender, place, memory));
    let media_type = match (zipped, own) {
        (true, _) => "application/gzip",
        (false, Some(own)) => own,
        (false, None) => line::accepted(&parts.headers),
    };
    let coding = if zipped { None } else { Coding::accepted(&parts.headers) };
    if let Some(coding) = coding.or(zipped.then_some(Coding::Gzip)) {
        chunks = compress(coding, chunks);
    }
    let mut ended = false;
    let body = Body::from_stream(futures_util::stream::poll_fn(move |context| {
        if ended {
            return Poll::Ready(None);
        }
        chunks.poll_recv(context).map(|chunk| {
            ended = chunk.as_ref().is_none_or(Bytes::is_empty);
            match chunk {
                Some(chunk) if !ended => Some(Ok(chunk)),
                Some(_) => None,
                None => Some(Err(anyhow::anyhow!("the export was interrupted"))),
            }
        })
    }));
    let mut response = ([(header::CONTENT_TYPE, media_type)], body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if let Some(coding) = coding {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    }
    headers.insert("gleaner-as-of", HeaderValue::try_from(as_of).map_err(anyhow::Error::from)?);
    if let Some(dropped) = dropped {
        headers.insert("gleaner-dropped", HeaderValue::from(dropped));
    }
    if let Some(cursor) = next_cursor {
        headers.insert("gleaner-next-cursor", HeaderValue::try_from(cursor).map_err(anyhow::Error::from)?);
    }
    Ok(response)
}
