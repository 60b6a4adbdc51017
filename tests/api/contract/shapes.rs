//! Shapes of bodies: an object is never taken from an array, wherever the document has one.

use serde_json::{Value, json};

use super::bounds::parts;
use super::{Call, Contract, Operation, members};
use crate::support::Service;

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
