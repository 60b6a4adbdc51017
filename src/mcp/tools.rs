//! The list of tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::Method;
use rmcp::model::{JsonObject, Tool as Definition, ToolAnnotations};
use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;

use super::schema::Schemas;

/// A tool in the list.
struct Entry {
    name: &'static str,
    title: &'static str,
    /// What the tool does and when to call it, for a model.
    description: &'static str,
    /// The operation of the API that a call becomes.
    operation: &'static str,
    /// The arguments, if the tool accepts fewer than the operation.
    arguments: Option<&'static [&'static str]>,
    effect: Effect,
}

/// What a call changes in the stored data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Nothing.
    Reads,
    /// The call records which memories were shown.
    Notes,
    /// The call adds something.
    Adds,
}

/// The tools, in the order in which they are listed.
const TOOLS: [Entry; 8] = [
    Entry {
        name: "suggest_memories",
        title: "Suggest memories",
        description: "Proactively suggests relevant memories and code based on conversation context. Call it at the \
                      beginning of a task and when the subject changes. A memory is suggested only once in a session.",
        operation: "suggest_memories",
        arguments: Some(&["session_id", "max_suggestions", "confidence_threshold", "include_code"]),
        effect: Effect::Notes,
    },
    Entry {
        name: "search_memories",
        title: "Search memories",
        description: "Searches memories of earlier sessions for a question or words, best first. Call it when you need something \
                      in particular: a decision, a convention, how something is done here.",
        operation: "search_memories",
        arguments: None,
        effect: Effect::Notes,
    },
    Entry {
        name: "store_memory",
        title: "Store a memory",
        description: "Stores something that later sessions should know: a decision and its reason, a pitfall, where \
                      something is. Write one or two sentences that can be understood alone, with the names of what \
                      they are about.",
        operation: "store_memory",
        arguments: None,
        effect: Effect::Adds,
    },
    Entry {
        name: "memory_feedback",
        title: "Give feedback on a memory",
        description: "Reports whether a memory that was suggested or found was useful (used) or not relevant \
                      (dismissed), which improves later suggestions.",
        operation: "judge_memory",
        arguments: None,
        effect: Effect::Adds,
    },
    Entry {
        name: "find_files_for_query",
        title: "Find files for a query",
        description: "Returns the file that probably has the answer to a query, judging by earlier searches and work \
                      in this repository, or nothing. Call it when a search of the code finds nothing, or too much.",
        operation: "find_associations",
        arguments: Some(&["query", "root", "agent_session_id", "limit"]),
        effect: Effect::Reads,
    },
    Entry {
        name: "find_similar_examples",
        title: "Find similar examples",
        description: "Returns programs that satisfied intents like this one, best first. Call it before you write a program in \
                      the project's own language.",
        operation: "find_similar_generations",
        arguments: None,
        effect: Effect::Reads,
    },
    Entry {
        name: "log_generation",
        title: "Log a generation",
        description: "Records what a user wanted and the program that was written for it, with its attempts. Call it when the \
                      program is accepted (success: true, with final_valid_dsl) or given up (success: false).",
        operation: "start_generation",
        arguments: None,
        effect: Effect::Adds,
    },
    Entry {
        name: "learner_stats",
        title: "Learning statistics",
        description: "Returns statistics of what was learned from searches: how many failed, how many were resolved, \
                      and how often a hint was followed.",
        operation: "get_search_figures",
        arguments: Some(&[]),
        effect: Effect::Reads,
    },
];

/// The part of a request in which an argument is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The path.
    Path,
    /// The query string.
    Query,
    /// The JSON body.
    Body,
}

/// A tool with the operation that its calls become.
pub(super) struct Tool {
    /// The tool as clients see it.
    pub(super) definition: Definition,
    /// The operation's method.
    pub(super) method: Method,
    /// The operation's path, with the names of its parameters in braces.
    pub(super) path: String,
    /// The part of the request in which each argument is sent.
    pub(super) parts: BTreeMap<String, Part>,
}

/// All tools.
pub struct Tools(Vec<Tool>);

impl Tools {
    /// Makes the tools from the OpenAPI document. The same document gives the same tools, to the byte.
    #[must_use]
    pub fn of(document: &OpenApi) -> Self {
        let document = serde_json::to_value(document).expect("the document is JSON");
        Self(TOOLS.iter().map(|entry| Tool::of(entry, &document)).collect())
    }

    /// Returns what clients see of the tools.
    pub(super) fn definitions(&self) -> Vec<Definition> {
        self.0.iter().map(|tool| tool.definition.clone()).collect()
    }

    /// Returns the tool with this name, if there is one.
    pub(super) fn get(&self, name: &str) -> Option<&Tool> {
        self.0.iter().find(|tool| tool.definition.name == name)
    }
}

impl Tool {
    fn of(entry: &Entry, document: &Value) -> Self {
        let (path, method, operation) = find(document, entry.operation);
        let none = Map::new();
        let schemas = document["components"]["schemas"].as_object().unwrap_or(&none);
        let schemas = Schemas(schemas);
        let (mut parts, mut properties, mut required) = (BTreeMap::new(), Map::new(), Vec::new());
        let is_wanted = |name: &str| entry.arguments.is_none_or(|arguments| arguments.contains(&name));
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let part = match parameter["in"].as_str() {
                Some("path") => Part::Path,
                Some("query") => Part::Query,
                _ => continue,
            };
            let Some(name) = parameter["name"].as_str().filter(|name| is_wanted(name)) else { continue };
            let mut schema = schemas.portable(&parameter["schema"]);
            schema["description"] = parameter["description"].clone();
            // An argument of the path is optional, because the session may be known from elsewhere.
            if part == Part::Query && parameter["required"] == true {
                required.push(Value::from(name));
            }
            parts.insert(name.to_owned(), part);
            properties.insert(name.to_owned(), schema);
        }
        let body = schemas.portable(&operation["requestBody"]["content"]["application/json"]["schema"]);
        for (name, schema) in body["properties"].as_object().into_iter().flatten() {
            if is_wanted(name) {
                parts.insert(name.clone(), Part::Body);
                properties.insert(name.clone(), schema.clone());
            }
        }
        required.extend(body["required"].as_array().into_iter().flatten().cloned());
        let schema = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        let Value::Object(schema) = schema else { unreachable!("it is written as an object") };
        let annotations = ToolAnnotations::with_title(entry.title)
            .read_only(entry.effect == Effect::Reads)
            .destructive(false)
            .idempotent(entry.effect == Effect::Reads)
            .open_world(false);
        let definition = Definition::new(entry.name, entry.description, Arc::<JsonObject>::new(schema))
            .with_title(entry.title)
            .with_annotations(annotations);
        Self { definition, method, path: path.to_owned(), parts }
    }

    /// Returns whether the tool accepts this argument.
    pub(super) fn takes(&self, argument: &str) -> bool {
        self.parts.contains_key(argument)
    }
}

/// Returns the path, the method and the operation with this operation id.
fn find<'a>(document: &'a Value, id: &str) -> (&'a str, Method, &'a Value) {
    let paths = document["paths"].as_object().into_iter().flatten();
    let operations = paths.flat_map(|(path, item)| {
        let operations = item.as_object().into_iter().flatten();
        operations.map(move |(method, operation)| (path.as_str(), method, operation))
    });
    let mut named = operations.filter(|(_, _, operation)| operation["operationId"] == id);
    let (path, method, operation) = named.next().expect("every tool is an operation of the document");
    let method = method.to_ascii_uppercase().parse().expect("the document names methods");
    (path, method, operation)
}
