//! Bounds: a value at a documented bound is taken, and the next one beyond it is refused by its name.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Call, Contract, Operation, members};
use crate::support::Service;

/// A value to be sent in one place of a request.
struct Probe {
    /// What is looked at, for messages.
    what: String,
    value: Value,
    /// Whether it is beyond the bound.
    is_beyond: bool,
}

#[tokio::test]
async fn a_bound_of_a_parameter_is_where_the_document_says() {
    let (service, key) = Service::closed().await;
    let contract = Contract::of(&service).await;
    let mut count = 0;
    for operation in contract.operations() {
        for parameter in operation.parameters() {
            let named = |member: &str| parameter[member].as_str().expect("a text").to_owned();
            let (place, name) = (named("in"), named("name"));
            for probe in contract.probes(contract.resolve(&parameter["schema"])) {
                // A path with an empty part is another path.
                if place == "path" && probe.value == "" {
                    continue;
                }
                let value = probe.value.as_str().map_or_else(|| probe.value.to_string(), str::to_owned);
                let mut calls = operation.examples();
                for call in &mut calls {
                    call.parameters.retain(|(_, other, _)| *other != name);
                    call.parameters.push((place.clone(), name.clone(), value.clone()));
                }
                check(&service, &key, &operation, &calls, &format!("/{name}"), &probe).await;
                count += 1;
            }
        }
    }
    assert!(count > 50, "only {count} values were tried");
}

#[tokio::test]
async fn a_bound_of_a_body_is_where_the_document_says() {
    let (service, key) = Service::closed().await;
    let contract = Contract::of(&service).await;
    let mut count = 0;
    for operation in contract.operations() {
        for (media_type, content) in operation.bodies().filter(|(name, _)| *name == "application/json") {
            let mut places = Vec::new();
            contract.bounded(&content["schema"], "", &mut places);
            let validator = contract.validator(&content["schema"]);
            for (pointer, schema) in places {
                // The probe at a bound comes before the one beyond it.
                let mut good = Value::Null;
                for probe in contract.probes(schema) {
                    if !probe.is_beyond {
                        good.clone_from(&probe.value);
                    }
                    let mut calls = operation.examples();
                    calls.retain_mut(|call| match &mut call.body {
                        Some((other, body)) if other == media_type => {
                            // Else it would be the example once more, with another body.
                            body.as_object_mut().map(|body| body.remove("id"));
                            // What is of one of several schemas may be good, or unknown, by another one.
                            contract.put(&content["schema"], body, &pointer, &good);
                            let can_have_it = validator.is_valid(body);
                            contract.put(&content["schema"], body, &pointer, &probe.value);
                            can_have_it && validator.is_valid(body) != probe.is_beyond
                        }
                        _ => false,
                    });
                    check(&service, &key, &operation, &calls, &pointer, &probe).await;
                    count += 1;
                }
            }
        }
    }
    assert!(count > 100, "only {count} values were tried");
}

/// Sends calls that have the probed value in the same place: beyond a bound, each is refused by that place's name; at it, one of them is
/// not. That one may be refused for another reason, as a value may ask for others beside it, and what it refers to need not exist.
async fn check(
    service: &Service,
    key: &str,
    operation: &Operation<'_>,
    calls: &[Call],
    pointer: &str,
    probe: &Probe,
) {
    let mut answers = Vec::new();
    for call in calls {
        let answer = service.send(operation.request(call, key)).await;
        let names_it = answer.status == 422
            && answer.json()["errors"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|error| error["pointer"] == pointer);
        let is_taken = !names_it && (answer.status.is_success() || answer.status.is_client_error());
        answers.push((names_it, is_taken, format!("{} {}", answer.status, answer.text())));
    }
    let holds = if calls.is_empty() {
        false
    } else if probe.is_beyond {
        answers.iter().all(|(names_it, ..)| *names_it)
    } else {
        answers.iter().any(|(_, is_taken, _)| *is_taken)
    };
    let shown: Vec<_> = answers.iter().map(|(.., answer)| answer).collect();
    let side = if probe.is_beyond { "beyond" } else { "at" };
    assert!(holds, "{} {pointer} {side} {}: {shown:#?}", operation.id, probe.what);
}

impl Contract {
    /// The values at and beyond each bound of a schema.
    fn probes(&self, schema: &Value) -> Vec<Probe> {
        let mut probes = Vec::new();
        for (bound, limit) in members(schema) {
            let is_least = bound.starts_with("min");
            let (at, beyond) = match bound.as_str() {
                "minimum" | "maximum" if types(schema).any(|name| name == "integer") => {
                    let limit =
                        limit.as_i64().or_else(|| limit.to_string().trim_end_matches(".0").parse().ok());
                    let limit = limit.expect("a whole number");
                    (json!(limit), Some(json!(if is_least { limit - 1 } else { limit + 1 })))
                }
                "minimum" | "maximum" => {
                    let limit = limit.as_f64().expect("a number");
                    (json!(limit), Some(json!(if is_least { limit.next_down() } else { limit.next_up() })))
                }
                "exclusiveMaximum" => {
                    let limit = limit.as_f64().expect("a number");
                    (json!(limit.next_down()), Some(json!(limit)))
                }
                "minLength" | "maxLength" | "minItems" | "maxItems" => {
                    let item = schema.get("items").map(|item| self.sample(item));
                    let long = |length: u64| {
                        let length = usize::try_from(length).expect("a length");
                        item.as_ref()
                            .map_or_else(|| json!("x".repeat(length)), |item| json!(vec![item; length]))
                    };
                    let limit = limit.as_u64().expect("a length");
                    let beyond = if is_least { limit.checked_sub(1) } else { Some(limit + 1) };
                    (long(limit), beyond.map(long))
                }
                _ => continue,
            };
            let what = format!("{bound} {limit}");
            probes.push(Probe { what: what.clone(), value: at, is_beyond: false });
            probes.extend(beyond.map(|value| Probe { what, value, is_beyond: true }));
        }
        probes
    }

    /// The places of a body whose values have bounds, by their pointers.
    fn bounded<'a>(&'a self, schema: &'a Value, pointer: &str, places: &mut Vec<(String, &'a Value)>) {
        let schema = self.resolve(schema);
        if !pointer.is_empty() && !self.probes(schema).is_empty() {
            places.push((pointer.to_owned(), schema));
        }
        for (name, member) in members(&schema["properties"]) {
            self.bounded(member, &format!("{pointer}/{name}"), places);
        }
        if schema["items"].is_object() {
            self.bounded(&schema["items"], &format!("{pointer}/0"), places);
        }
        for part in parts(schema) {
            self.bounded(part, pointer, places);
        }
    }

    /// Puts a value into a body; what would hold it is made where it is not there.
    pub(super) fn put(&self, schema: &Value, body: &mut Value, pointer: &str, value: &Value) {
        let (mut schema, mut place) = (schema, body);
        for name in pointer.split('/').skip(1) {
            schema = self.member(schema, name).unwrap_or_else(|| panic!("no schema at {pointer}"));
            place = match place {
                Value::Array(items) => {
                    if items.is_empty() {
                        items.push(self.sample(schema));
                    }
                    &mut items[0]
                }
                object => &mut object[name],
            };
            if place.is_null() {
                *place = self.sample(schema);
            }
        }
        place.clone_from(value);
    }

    /// The schema of a member of an object, or of the items of an array.
    pub(super) fn member<'a>(&'a self, schema: &'a Value, name: &str) -> Option<&'a Value> {
        let schema = self.resolve(schema);
        let own = if name == "0" { schema.get("items") } else { schema["properties"].get(name) };
        own.or_else(|| parts(schema).find_map(|part| self.member(part, name)))
    }

    /// The least value that a schema allows.
    pub(super) fn sample(&self, schema: &Value) -> Value {
        let schema = self.resolve(schema);
        if let Some(value) = schema["enum"].get(0) {
            return value.clone();
        }
        if let Some(part) = parts(schema).find(|part| part["type"] != "null") {
            return self.sample(part);
        }
        match types(schema).find(|name| *name != "null") {
            Some("object") => {
                let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
                required.map(|name| (name.to_owned(), self.sample(&schema["properties"][name]))).collect()
            }
            Some("array") => json!([]),
            Some("boolean") => json!(true),
            Some("integer" | "number") => json!(1),
            _ if schema["format"] == "uuid" => json!(Uuid::nil()),
            _ => json!("x"),
        }
    }
}

/// The names of the types that a schema allows.
pub(super) fn types(schema: &Value) -> impl Iterator<Item = &str> {
    let several = schema["type"].as_array().into_iter().flatten();
    several.chain(schema.get("type")).filter_map(Value::as_str)
}

/// The schemas that a schema is put together of.
pub(super) fn parts(schema: &Value) -> impl Iterator<Item = &Value> {
    ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|name| schema[name].as_array()).flatten()
}
