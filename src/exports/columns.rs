//! The columns of a Parquet file, and how rows become columns. They follow from the JSON Schema of a row. Values without
//! fixed members, such as the parameters of a tool or a client's own object, are JSON texts, because loaders need the
//! same type in all rows.

use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_json::ReaderBuilder;
use arrow_json::reader::Decoder;
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    /// A text.
    Text,
    /// A whole number of 64 bits.
    Integer,
    /// A number of 64 bits.
    Number,
    /// True or false.
    Boolean,
    /// Any JSON, as its text.
    Json,
    /// A list of values of one type.
    List(Box<Self>),
    /// Named members.
    Struct(Vec<(String, Self)>),
}

impl Column {
    /// Returns the type of the values that have this JSON Schema.
    #[must_use]
    pub fn of(schema: &Value) -> Self {
        let alternatives = ["oneOf", "anyOf"].iter().find_map(|name| schema[*name].as_array());
        if let Some(alternatives) = alternatives {
            let mut others = alternatives.iter().filter(|schema| schema["type"] != "null");
            return match (others.next(), others.next()) {
                (Some(only), None) => Self::of(only),
                _ => Self::Json,
            };
        }
        let kind = match &schema["type"] {
            Value::String(kind) => Some(kind.as_str()),
            Value::Array(kinds) => {
                let mut kinds = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null");
                kinds.next().filter(|_| kinds.next().is_none())
            }
            _ => None,
        };
        match kind {
            Some("string") => Self::Text,
            Some("integer") => Self::Integer,
            Some("number") => Self::Number,
            Some("boolean") => Self::Boolean,
            Some("array") => match Self::of(&schema["items"]) {
                Self::Json => Self::Json,
                items => Self::List(Box::new(items)),
            },
            Some("object") => match schema["properties"].as_object() {
                Some(members) if !members.is_empty() => {
                    // The required members come first, in the order in which rows have them.
                    let first: Vec<_> = schema["required"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(Value::as_str)
                        .collect();
                    let place =
                        |name: &String| first.iter().position(|first| first == name).unwrap_or(first.len());
                    let mut members: Vec<_> =
                        members.iter().map(|(name, schema)| (name.clone(), Self::of(schema))).collect();
                    members.sort_by_key(|(name, _)| place(name));
                    Self::Struct(members)
                }
                _ => Self::Json,
            },
            _ => Self::Json,
        }
    }

    /// Returns the schema of a file whose rows are structs of this type.
    fn schema(&self) -> Arc<Schema> {
        let fields = match self {
            Self::Struct(members) => fields(members),
            _ => Fields::empty(),
        };
        Arc::new(Schema::new(fields))
    }

    fn data_type(&self) -> DataType {
        match self {
            Self::Text | Self::Json => DataType::Utf8,
            Self::Integer => DataType::Int64,
            Self::Number => DataType::Float64,
            Self::Boolean => DataType::Boolean,
            Self::List(items) => DataType::List(Arc::new(Field::new("element", items.data_type(), true))),
            Self::Struct(members) => DataType::Struct(fields(members)),
        }
    }

    /// Returns whether values of this type contain JSON that is stored as text.
    fn has_json(&self) -> bool {
        match self {
            Self::Json => true,
            Self::List(items) => items.has_json(),
            Self::Struct(members) => members.iter().any(|(_, member)| member.has_json()),
            Self::Text | Self::Integer | Self::Number | Self::Boolean => false,
        }
    }

    /// Returns a value with the JSON in it as text.
    fn with_texts(&self, value: &RawValue) -> serde_json::Result<Value> {
        let text = value.get();
        match self {
            _ if text == "null" => Ok(Value::Null),
            Self::Json => Ok(text.into()),
            Self::List(items) => {
                let values: Vec<&RawValue> = serde_json::from_str(text)?;
                values.into_iter().map(|value| items.with_texts(value)).collect()
            }
            Self::Struct(members) => {
                let values: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
                let known =
                    members.iter().filter_map(|(name, member)| Some((name, member, values.get(name)?)));
                known.map(|(name, member, value)| Ok((name.clone(), member.with_texts(value)?))).collect()
            }
            Self::Text | Self::Integer | Self::Number | Self::Boolean => serde_json::from_str(text),
        }
    }
}

fn fields(members: &[(String, Column)]) -> Fields {
    members.iter().map(|(name, member)| Field::new(name, member.data_type(), true)).collect()
}

/// Rows that become columns.
#[derive(Debug)]
pub struct Columns {
    /// The type of a row.
    row: Column,
    /// Whether a row contains JSON that is stored as text.
    has_json: bool,
    schema: Arc<Schema>,
    decoder: Decoder,
}

impl Columns {
    /// Makes the columns of rows that have this JSON Schema.
    pub fn new(row_schema: &Value) -> Result<Self, ArrowError> {
        let row = Column::of(row_schema);
        let schema = row.schema();
        let decoder = ReaderBuilder::new(Arc::clone(&schema)).build_decoder()?;
        Ok(Self { has_json: row.has_json(), row, schema, decoder })
    }

    /// Returns the names and types of the columns.
    #[must_use]
    pub fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema)
    }

    /// Adds a row.
    pub fn push(&mut self, row: &impl Serialize) -> anyhow::Result<()> {
        if self.has_json {
            let row = self.row.with_texts(&to_raw_value(row)?)?;
            self.decoder.serialize(&[row])?;
        } else {
            self.decoder.serialize(slice::from_ref(row))?;
        }
        Ok(())
    }

    /// Returns the columns of the rows that were added since the last time, if there are any.
    pub fn take(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        self.decoder.flush()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_follow_from_the_schema_and_what_has_no_fixed_members_is_a_text() {
        let column = Column::of(&json!({"type": "object", "properties": {
            "a": {"type": ["string", "null"]},
            "b": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}, "any": {"type": "object"}}}},
            "c": {"oneOf": [{"type": "null"}, {"type": "number"}]},
            "d": {"type": "array", "items": {"type": "object"}},
            "e": {"type": "boolean"},
            "f": {"type": ["string", "integer"]},
        }}));
        let member = |name: &str, column| (name.to_owned(), column);
        let items = Column::Struct(vec![member("any", Column::Json), member("n", Column::Integer)]);
        let expected = vec![
            member("a", Column::Text),
            member("b", Column::List(Box::new(items))),
            member("c", Column::Number),
            member("d", Column::Json),
            member("e", Column::Boolean),
            member("f", Column::Json),
        ];
        assert_eq!(column, Column::Struct(expected));
        let row =
            r#"{"a":"x","b":[{"n":1,"any":{"k":[1, 2]}},{"n":2,"any":null}],"c":1.5,"d":[{"t":"\""}],"f":7}"#;
        let row: &RawValue = serde_json::from_str(row).expect("JSON");
        let expected = json!({"a": "x", "b": [{"any": r#"{"k":[1, 2]}"#, "n": 1}, {"any": null, "n": 2}], "c": 1.5,
            "d": r#"[{"t":"\""}]"#, "f": "7"});
        assert_eq!(column.with_texts(row).expect("JSON"), expected);
    }
}
