//! Shapes of bodies: an empty name is one that was left out, and an object is never taken from an array, wherever the document
//! has one.

use serde_json::{Value, json};
use uuid::Uuid;

use super::bounds::{parts, types};
use super::{Call, Contract, Operation, members};
use crate::support::{Answer, Service};

#[tokio::test]
async fn an_optional_name_that_is_empty_is_the_same_as_one_that_was_left_out() {
    let (service, key) = Service::closed().await;
    let contract = Contract::of(&service).await;
    let mut count = 0;
    for operation in contract.operations() {
        for (call, schema, place) in places(&contract, &operation, Contract::optional_names) {
            // The same request must be the same record, which is made by the first of these calls.
            let id = json!(Uuid::now_v7());
            let (mut outcomes, mut is_made) = (Vec::new(), false);
            for value in [None, Some(json!(null)), Some(json!(""))] {
                let mut call = call.clone();
                let (_, body) = call.body.as_mut().expect("a body");
                contract.put(schema, body, &place, &json!(null));
                match value {
                    Some(value) => *body.pointer_mut(&place).expect("a place") = value,
                    None => remove(body, &place),
                }
                let is_named = body.get("id").is_some();
                if is_named {
                    body["id"] = id.clone();
                }
                let answer = service.send(operation.request(&call, &key)).await;
                // What makes a record the first time is a replay of it from then on; what needs the name is refused each time.
                is_made |= answer.status == 201;
                let is_replay = is_named && is_made && !outcomes.is_empty();
                assert!(!is_replay || answer.status == 200, "{}", answer.text());
                outcomes.push(outcome(&answer, &place));
            }
            assert!(
                outcomes.iter().all(|other| *other == outcomes[0]),
                "{} {place} {outcomes:#?}",
                operation.id
            );
            count += 1;
        }
    }
    assert!(count > 20, "only {count} names were tried");
}

#[tokio::test]
async fn an_object_within_a_body_is_not_taken_from_an_array() {
    let (service, key) = Service::closed().await;
    let contract = Contract::of(&service).await;
    let mut count = 0;
    for operation in contract.operations() {
        for (mut call, schema, place) in places(&contract, &operation, Contract::objects) {
            let (_, body) = call.body.as_mut().expect("a body");
            contract.put(schema, body, &place, &json!([true, null]));
            service.send(operation.request(&call, &key)).await.refused(422, &[&place]);
            count += 1;
        }
    }
    assert!(count > 10, "only {count} objects were tried");
}

/// What came of a request: how it was refused, or which name was stored.
fn outcome(answer: &Answer, place: &str) -> Value {
    let body = answer.json();
    if answer.status.is_success() {
        return json!({"stored": body.pointer(place)});
    }
    let pointers: Vec<_> =
        body["errors"].as_array().into_iter().flatten().map(|error| &error["pointer"]).collect();
    json!({"status": answer.status.as_u16(), "pointers": pointers})
}

/// The member at a pointer is no longer there.
fn remove(body: &mut Value, place: &str) {
    let (parent, name) = place.rsplit_once('/').expect("a pointer");
    body.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object").remove(name);
}

/// The examples of an operation with each place of their bodies that `find` finds in the schema, if the example can have it.
fn places<'a>(
    contract: &'a Contract,
    operation: &'a Operation<'_>,
    find: fn(&Contract, &Value, &str, &mut Vec<String>),
) -> Vec<(Call, &'a Value, String)> {
    let Some(content) = operation.bodies().find(|(name, _)| *name == "application/json") else {
        return Vec::new();
    };
    let schema = &content.1["schema"];
    let validator = contract.validator(schema);
    let mut found = Vec::new();
    find(contract, schema, "", &mut found);
    let mut places = Vec::new();
    for place in found {
        for call in operation.examples() {
            let Some((_, mut body)) = call.body.clone().filter(|(name, _)| *name == "application/json")
            else {
                continue;
            };
            contract.put(schema, &mut body, &place, &json!(null));
            let value = contract.at(schema, &place).map_or(Value::Null, |own| contract.sample(own));
            *body.pointer_mut(&place).expect("a place") = value;
            if validator.is_valid(&body) {
                places.push((call, schema, place.clone()));
            }
        }
    }
    places
}

impl Contract {
    /// The places of texts that may be left out and have a greatest length, which makes them names.
    fn optional_names(&self, schema: &Value, pointer: &str, places: &mut Vec<String>) {
        self.visit(schema, pointer, &mut |own, is_required, pointer| {
            let is_text = types(own).any(|name| name == "string") && own["format"].is_null();
            if is_text && !is_required && own["maxLength"].is_number() {
                places.push(pointer.to_owned());
            }
        });
    }

    /// The places of objects whose members the document names.
    fn objects(&self, schema: &Value, pointer: &str, places: &mut Vec<String>) {
        self.visit(schema, pointer, &mut |own, _, pointer| {
            if own["properties"].is_object() {
                places.push(pointer.to_owned());
            }
        });
    }

    /// Shows every schema within the schema of a body, whether it is of a member that is required, and its place.
    fn visit(&self, schema: &Value, pointer: &str, see: &mut impl FnMut(&Value, bool, &str)) {
        let schema = self.resolve(schema);
        for (name, member) in members(&schema["properties"]) {
            let pointer = format!("{pointer}/{name}");
            let is_required =
                schema["required"].as_array().is_some_and(|names| names.iter().any(|own| own == name));
            for own in [member].into_iter().chain(parts(self.resolve(member))) {
                see(self.resolve(own), is_required, &pointer);
            }
            self.visit(member, &pointer, see);
        }
        if schema["items"].is_object() {
            let pointer = format!("{pointer}/0");
            see(self.resolve(&schema["items"]), true, &pointer);
            self.visit(&schema["items"], &pointer, see);
        }
        for part in parts(schema) {
            self.visit(part, pointer, see);
        }
    }

    /// The schema at a place of a body.
    fn at<'a>(&'a self, schema: &'a Value, pointer: &str) -> Option<&'a Value> {
        pointer.split('/').skip(1).try_fold(schema, |schema, name| self.member(schema, name))
    }
}
