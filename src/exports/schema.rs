//! The JSON Schema (2020-12) of exported rows. The schema of a chat follows from the format and from what the
//! question is made of. The schemas of a data set's own columns and of `metadata` follow from the structs that are
//! written.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::format::{Format, Shape, Weights};
use super::params::Common;
use super::{Description, Told};

/// Returns the schema of a row, or none if rows are not JSON.
pub(super) fn of_row(
    description: &Description,
    format: Format,
    shape: Shape,
    told: Told,
    common: &Common,
) -> Option<Value> {
    if !format.is_json() {
        return None;
    }
    let mut row = match (format, description.raw) {
        (Format::Raw, Some(raw)) => raw(),
        (Format::VwDsjson, _) => decision(),
        _ => chat(format, shape, told, common.weights.unwrap_or_default()),
    };
    if let (true, Some(metadata)) = (common.with_metadata(), description.metadata) {
        row["properties"]["metadata"] = metadata();
        if let Some(required) = row["required"].as_array_mut() {
            required.push("metadata".into());
        }
    }
    row["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    row["title"] = format!("A row of {} in the format {}", description.name, format.name()).into();
    row["description"] = description.summary.into();
    Some(row)
}

/// Returns the schema, without references, of a struct that is written with all its members.
pub fn of<T: ToSchema>() -> Value {
    let mut named = Vec::new();
    T::schemas(&mut named);
    let value = |schema| serde_json::to_value(schema).expect("a schema is plain values");
    let named: BTreeMap<_, _> = named.into_iter().map(|(name, schema)| (name, value(schema))).collect();
    resolved(value(T::schema()), &named)
}

/// Returns a schema with its references replaced by their targets. All members of an object are required, and no
/// others are allowed.
fn resolved(schema: Value, named: &BTreeMap<String, Value>) -> Value {
    let Value::Object(mut schema) = schema else { return schema };
    if let Some(Value::String(reference)) = schema.get("$ref") {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return match name {
            // A row has a text here, while a request may also have a number.
            "Timestamp" => json!({"type": "string", "format": "date-time"}),
            "Message" => message(Told::Request, false),
            _ => resolved(named.get(name).cloned().unwrap_or_default(), named),
        };
    }
    for value in schema.values_mut() {
        *value = match value.take() {
            Value::Array(parts) => parts.into_iter().map(|part| resolved(part, named)).collect(),
            part => resolved(part, named),
        };
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        let (mut required, mut members) = (Vec::new(), Map::new());
        for (name, property) in std::mem::take(properties) {
            if !property.as_object().is_some_and(|property| property.contains_key(MAY_BE_ABSENT)) {
                required.push(name.clone());
            }
            members.insert(name, property);
        }
        *properties = members;
        schema.insert("required".to_owned(), required.into());
        schema.insert("additionalProperties".to_owned(), false.into());
    }
    schema.into()
}

/// Marks a member of a struct that is not in every row.
pub const MAY_BE_ABSENT: &str = "x-may-be-absent";

fn text() -> Value {
    json!({"type": "string"})
}

fn list(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

/// Returns the schema of an object with these members, of which some may be absent.
fn object(members: Vec<(&str, Value)>, absent: Vec<(&str, Value)>) -> Value {
    let required: Vec<_> = members.iter().map(|(name, _)| *name).collect();
    let required = json!(required);
    let properties: Map<_, _> =
        members.into_iter().chain(absent).map(|(name, schema)| (name.to_owned(), schema)).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn message(told: Told, weighed: bool) -> Value {
    let mut absent = Vec::new();
    if told == Told::Request {
        let nullable = json!({"type": ["string", "null"]});
        let function = object(vec![("name", nullable.clone()), ("arguments", text())], vec![]);
        let call = vec![("id", nullable), ("type", text()), ("function", function)];
        absent.extend([("tool_calls", list(&object(call, vec![]))), ("tool_call_id", text())]);
    }
    if weighed {
        absent.push(("weight", json!({"enum": [0, 1], "type": "integer"})));
    }
    object(vec![("role", text()), ("content", text())], absent)
}

/// Returns the schema of a chat, or of a row that is made from one.
fn chat(format: Format, shape: Shape, told: Told, weights: Weights) -> Value {
    let says_weights = format == Format::Openai
        && weights == Weights::Openai
        && (told != Told::Intent || shape == Shape::Correction);
    let messages = list(&message(told, says_weights));
    let said = message(Told::Intent, false);
    let answer = json!({"type": "array", "items": said, "minItems": 1, "maxItems": 1});
    let tools = || match told {
        Told::Request => vec![("tools", list(&json!({"type": "object"})))],
        _ => vec![],
    };
    let boolean = json!({"type": "boolean"});
    match format {
        Format::Openai => object(vec![("messages", messages)], tools()),
        Format::FixPrompt => object(vec![("messages", list(&said))], vec![]),
        Format::TrlPromptCompletion => object(vec![("prompt", messages), ("completion", answer)], tools()),
        Format::TrlPreference => {
            object(vec![("prompt", messages), ("chosen", answer.clone()), ("rejected", answer)], tools())
        }
        Format::OpenaiPreference => {
            let input = object(vec![("messages", messages)], tools());
            let outputs = [("preferred_output", answer.clone()), ("non_preferred_output", answer)];
            object([("input", input)].into_iter().chain(outputs).collect(), vec![])
        }
        Format::TrlKto => {
            object(vec![("prompt", messages), ("completion", answer), ("label", boolean)], tools())
        }
        Format::LlamafactoryPreference => {
            object(vec![("messages", messages), ("chosen", said.clone()), ("rejected", said)], tools())
        }
        Format::LlamafactoryKto => object(vec![("messages", messages), ("kto_tag", boolean)], tools()),
        Format::TrlStepwise => object(
            vec![("prompt", text()), ("completions", list(&text())), ("labels", list(&boolean))],
            vec![],
        ),
        Format::Alpaca => {
            let (mut members, mut absent) =
                (vec![("instruction", text()), ("input", text()), ("output", text())], vec![]);
            let system = ("system", text());
            if shape == Shape::Answer {
                members.push(system);
            } else {
                absent.push(system);
            }
            object(members, absent)
        }
        Format::Rft => object(vec![("messages", messages), ("reference_answer", text())], tools()),
        Format::Rl => object(vec![("prompt", messages), ("reference_answer", text())], tools()),
        Format::Triplets => {
            object(vec![("anchor", text()), ("positive", text()), ("negative", text())], vec![])
        }
        Format::Pairs => object(vec![("anchor", text()), ("positive", text())], vec![]),
        Format::Raw | Format::VwDsjson | Format::Letor | Format::LightgbmTsv => json!({"type": "object"}),
    }
}

/// Returns the schema of a decision, whose features are named by the data set.
fn decision() -> Value {
    let [number, natural] = [json!({"type": "number"}), json!({"type": "integer", "minimum": 0})];
    let features = json!({"type": "object", "additionalProperties": {"type": ["string", "integer"]}});
    let action = json!({"type": "object", "additionalProperties": features});
    let seen = object(vec![("Context", features), ("_multi", list(&action))], vec![]);
    object(
        vec![
            ("_label_cost", number.clone()),
            ("_label_probability", number.clone()),
            ("_label_Action", natural.clone()),
            ("_labelIndex", natural.clone()),
            ("Timestamp", json!({"type": "string", "format": "date-time"})),
            ("Version", text()),
            ("EventId", text()),
            ("a", list(&natural)),
            ("c", seen),
            ("p", list(&number)),
            ("VWState", object(vec![("m", text())], vec![])),
        ],
        vec![],
    )
}
