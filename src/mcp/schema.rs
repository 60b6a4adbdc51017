//! The schemas of tools, derived from those of the OpenAPI document.
//!
//! Clients pass a tool's schema to the model's provider, and providers support different parts of JSON Schema. These
//! schemas use only what all of them support: they have no references, unions, nulls or formats of numbers; every
//! object is closed, and every property has a type.

use serde_json::{Map, Value};

/// The schemas among the components of an OpenAPI document.
pub(super) struct Schemas<'a>(pub(super) &'a Map<String, Value>);

/// The members of a schema that are copied unchanged.
const KEPT: [&str; 12] = [
    "description",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
    "title",
];

/// The formats of texts that are kept.
const FORMATS: [&str; 2] = ["date-time", "uuid"];

impl Schemas<'_> {
    /// Returns a schema in a form that all clients accept.
    pub(super) fn portable(&self, schema: &Value) -> Value {
        let mut flat = Map::new();
        self.flatten(schema, &mut flat);
        let mut portable = Map::new();
        for name in KEPT {
            if let Some(value) = flat.get(name) {
                portable.insert(name.to_owned(), value.clone());
            }
        }
        if let Some(kind) = flat.get("type").and_then(only_type) {
            portable.insert("type".to_owned(), kind);
        }
        if let Some(format) = flat.get("format").filter(|format| FORMATS.iter().any(|kept| *format == kept)) {
            portable.insert("format".to_owned(), format.clone());
        }
        if let Some(default) = flat.get("default").filter(|default| !default.is_null()) {
            portable.insert("default".to_owned(), default.clone());
        }
        if let Some(items) = flat.get("items") {
            portable.insert("items".to_owned(), self.portable(items));
        }
        if let Some(Value::Object(properties)) = flat.get("properties") {
            let properties = properties.iter().map(|(name, schema)| (name.clone(), self.portable(schema)));
            portable.insert("properties".to_owned(), Value::Object(properties.collect()));
            portable.insert("additionalProperties".to_owned(), false.into());
            if let Some(required) = flat.get("required") {
                portable.insert("required".to_owned(), required.clone());
            }
        }
        Value::Object(portable)
    }

    /// Adds the members of a schema, and of the schemas that it refers to. Existing members stay, because a member
    /// beside a reference takes precedence over the one in its target. Of alternatives, the first one that is not
    /// null is used, which is the one that the API itself sends.
    fn flatten(&self, schema: &Value, flat: &mut Map<String, Value>) {
        let Value::Object(members) = schema else { return };
        for (name, value) in members {
            flat.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let name = members.get("$ref").and_then(Value::as_str).and_then(|target| target.rsplit('/').next());
        if let Some(target) = name.and_then(|name| self.0.get(name)) {
            self.flatten(target, flat);
        }
        let alternatives =
            ["oneOf", "anyOf", "allOf"].iter().filter_map(|name| members.get(*name)?.as_array());
        let is_null = |schema: &&Value| schema.get("type").is_some_and(|kind| kind == "null");
        for alternatives in alternatives {
            if let Some(first) = alternatives.iter().find(|schema| !is_null(schema)) {
                self.flatten(first, flat);
            }
        }
    }
}

/// Returns the type other than null.
fn only_type(kind: &Value) -> Option<Value> {
    match kind {
        Value::Array(kinds) => kinds.iter().find(|kind| **kind != "null").cloned(),
        kind => Some(kind.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_unions_and_nulls_are_resolved_and_objects_are_closed() {
        let schemas = json!({
            "Time": {"oneOf": [{"type": "string", "format": "date-time"}, {"type": "number"}], "description": "A time."},
            "Inner": {"type": "object", "properties": {"n": {"type": ["integer", "null"], "format": "int32", "minimum": 1}}},
        });
        let Value::Object(schemas) = schemas else { panic!("an object") };
        let schema = json!({"type": "object", "required": ["at"], "properties": {
            "at": {"oneOf": [{"$ref": "#/components/schemas/Time", "description": "When."}, {"type": "null"}], "default": null},
            "all": {"type": "array", "items": {"$ref": "#/components/schemas/Inner"}, "maxItems": 3},
            "free": {"type": "object", "additionalProperties": true},
        }});
        let expected = json!({"type": "object", "required": ["at"], "additionalProperties": false, "properties": {
            "at": {"type": "string", "format": "date-time", "description": "When."},
            "all": {"type": "array", "maxItems": 3, "items": {"type": "object", "additionalProperties": false, "properties": {
                "n": {"type": "integer", "minimum": 1}}}},
            "free": {"type": "object"},
        }});
        assert_eq!(Schemas(&schemas).portable(&schema), expected);
    }
}
