//! The request for a snapshot: the parameters of the export, and the properties of the file.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use utoipa::openapi::schema::{AdditionalProperties, Object, ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use uuid::Uuid;

use super::File;
use crate::error::{Error, Result};
use crate::exports::datasets::{self, AnyDataset, Entry};
use crate::exports::export;
use crate::exports::format::Format;
use crate::exports::params::{COMMON, Common, redact};
use crate::http::params::from_pairs;
use crate::http::{Check, Checks};
use crate::privacy::redact::{Redaction, Texts};
use crate::types::{OptionalName, names_it};

/// A request to store an export as a file. All other members are parameters of the export, with the same names as in
/// the export's URL.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NewSnapshot {
    /// The snapshot's id. Without it, the server chooses one.
    #[serde(skip_serializing_if = "names_it")]
    pub id: Option<Uuid>,
    /// The data set.
    #[schema(example = "training-pairs")]
    pub dataset: String,
    /// The kind of file. The default is parquet.
    pub file: Option<File>,
    /// The name of the file without its extension: letters, digits, `-`, `_` and `.`. The default is the name of the
    /// data set.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 200, pattern = "^[A-Za-z0-9_.-]*$")]
    pub name: OptionalName,
    /// The licence under which the rows may be used, such as `apache-2.0`. It appears in the data set card.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 200)]
    pub licence: OptionalName,
    /// The number of days after which the snapshot is deleted automatically. Without it, the snapshot is kept until a
    /// request deletes it.
    #[schema(minimum = 1, maximum = 36_500)]
    pub keep_days: Option<u32>,
    /// The parameters of the export.
    #[serde(flatten)]
    pub parameters: Map<String, Value>,
}

/// Adds the names of data sets, and the names and types of their parameters, to the schema of [`NewSnapshot`].
pub fn complete(schema: &mut Object) {
    let text = |values: Vec<String>| ObjectBuilder::new().schema_type(Type::String).enum_values(Some(values));
    let names = datasets::ALL.iter().map(|entry| entry.description.name.to_owned());
    let own = datasets::ALL.iter().flat_map(|entry| (entry.parameters)()).map(|parameter| parameter.name);
    let common = COMMON.iter().filter(|name| **name != "cursor").map(|name| (*name).to_owned());
    let members: BTreeSet<_> = schema.properties.keys().cloned().chain(common).chain(own).collect();
    schema.property_names = Some(Box::new(text(members.into_iter().collect()).into()));
    if let Some(RefOr::T(Schema::Object(dataset))) = schema.properties.get_mut("dataset") {
        dataset.enum_values = Some(names.map(Value::from).collect());
    }
    let value = [Type::String, Type::Number, Type::Boolean, Type::Null];
    let value = ObjectBuilder::new()
        .schema_type(SchemaType::from_iter(value))
        .description(Some("A parameter of the export."));
    schema.additional_properties = Some(Box::new(AdditionalProperties::RefOr(RefOr::T(value.into()))));
}

/// Parameters may have texts that become part of the file, such as a message of the system, and names, of which the stored
/// ones are redacted too. A replacement has characters that a file's name may not have.
impl Texts for NewSnapshot {
    fn texts(&mut self, redaction: &mut Redaction<'_>) {
        for (name, parameter) in &mut self.parameters {
            if let Value::String(text) = parameter {
                redact(name, text, redaction);
            }
        }
        self.licence.texts(redaction);
        self.name.texts(redaction);
        self.name = self.name.as_deref().map(|name| name.replace(|c| !is_plain(c), "-")).into();
    }
}

/// Returns whether a character may be in the name of a file.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

impl Check for NewSnapshot {
    fn check(&self, checks: &mut Checks) {
        checks.name("dataset", Some(&self.dataset));
        let name = self.name.as_deref();
        checks.name("name", name);
        let fits = name.is_none_or(|name| name.chars().all(is_plain));
        checks.require(fits, "name", "must have only letters, digits, -, _ and .");
        checks.name("licence", self.licence.as_deref());
        let days = self.keep_days.is_none_or(|days| (1..=36_500).contains(&days));
        checks.require(days, "keep_days", "must be from 1 to 36500");
        checks.require(
            !self.parameters.contains_key("cursor"),
            "cursor",
            "a snapshot cannot be divided into parts",
        );
    }
}

/// The export that a snapshot stores.
pub struct Wanted {
    /// The data set.
    pub entry: &'static Entry,
    /// The data set with its own parameters.
    pub dataset: AnyDataset,
    /// The parameters that all data sets share.
    pub common: Common,
}

impl Wanted {
    /// Reads the parameters of a data set's export.
    pub fn read(dataset: &str, parameters: &Map<String, Value>) -> Result<Self> {
        let entry = datasets::ALL.iter().find(|entry| entry.description.name == dataset);
        let entry = entry.ok_or_else(|| Error::invalid("/dataset", "there is no such data set"))?;
        let mut pairs = Vec::new();
        for (name, value) in parameters {
            let value = match value {
                Value::Null => continue,
                Value::String(text) => text.clone(),
                Value::Array(_) | Value::Object(_) => {
                    return Err(Error::invalid(
                        format!("/{name}"),
                        "must be a text, a number, true or false",
                    ));
                }
                other => other.to_string(),
            };
            if !value.is_empty() {
                pairs.push((name.clone(), value));
            }
        }
        let (common, own): (Vec<_>, Vec<_>) =
            pairs.into_iter().partition(|(name, _)| COMMON.contains(&name.as_str()));
        for (name, _) in &common {
            if !entry.description.has_parameter(name) {
                return Err(Error::invalid(format!("/{name}"), "this data set has no such parameter"));
            }
        }
        Ok(Self { entry, dataset: (entry.from_query)(&own)?, common: from_pairs(&common)? })
    }

    /// Checks the parameters. Returns the format of the rows, and their JSON Schema.
    pub fn check(&self) -> Result<(Format, Value)> {
        let Self { entry, dataset, common } = self;
        let (format, _) = export::check(&entry.description, dataset.as_ref(), common)?;
        let schema = export::schema(&entry.description, dataset.as_ref(), common)?;
        let schema =
            schema.ok_or_else(|| Error::invalid("/format", "must be a format whose rows are JSON"))?;
        Ok((format, schema))
    }
}
