//! [`Place`], the session and the folder in which a model works.

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::types::value;

/// The agent session and the folder in which a model works, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The name of the agent session.
    pub session: Option<String>,
    /// The folder.
    pub root: Option<String>,
}

impl Place {
    /// Reads the metadata of a call, which clients send beside its arguments. Codex names its session there, and in
    /// `x-codex-turn-metadata` the folders in which it works, as an object or as the JSON text of one.
    pub(super) fn of_meta(meta: &JsonObject) -> Self {
        let name = |name: &str| meta.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let session = name("threadId").or_else(|| name("sessionId")).map(str::to_owned);
        let root = meta.get("x-codex-turn-metadata").and_then(|turn| match turn {
            Value::String(text) => only_workspace(&value::parse_inner(text).ok()?),
            turn => only_workspace(turn),
        });
        Self { session, root }
    }

    /// Adds from `other` what is not known here.
    #[must_use]
    pub(super) fn or(self, other: Self) -> Self {
        Self { session: self.session.or(other.session), root: self.root.or(other.root) }
    }
}

/// Returns the folder in which an agent works. If there are several, the current one is not known.
fn only_workspace(turn: &Value) -> Option<String> {
    let mut paths = match turn.get("workspaces")? {
        Value::Object(folders) => folders.keys().cloned().collect::<Vec<_>>(),
        Value::Array(folders) => {
            let path =
                |folder: &Value| folder.as_str().or_else(|| folder.get("path")?.as_str()).map(str::to_owned);
            folders.iter().filter_map(path).collect()
        }
        _ => return None,
    };
    if paths.len() == 1 { paths.pop() } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn place(meta: Value) -> (Option<String>, Option<String>) {
        let Value::Object(meta) = meta else { panic!("an object") };
        let Place { session, root } = Place::of_meta(&meta);
        (session, root)
    }

    #[test]
    fn codex_names_its_thread_and_its_only_folder() {
        let known = (Some("t".to_owned()), Some("/src/app".to_owned()));
        for turn in [
            json!({"turn_id": "1", "workspaces": {"/src/app": {"has_changes": true}}}),
            json!({"workspaces": ["/src/app"]}),
            json!({"workspaces": [{"path": "/src/app"}]}),
            json!("{\"workspaces\": {\"/src/app\": {}}}"),
        ] {
            assert_eq!(
                place(json!({"sessionId": "s", "threadId": "t", "x-codex-turn-metadata": turn})),
                known
            );
        }
        for turn in [
            json!({"workspaces": {"/a": {}, "/b": {}}}),
            json!({"workspaces": 1}),
            json!("no JSON"),
            json!(null),
        ] {
            let meta = json!({"sessionId": "s", "x-codex-turn-metadata": turn});
            assert_eq!(place(meta), (Some("s".to_owned()), None));
        }
        assert_eq!(place(json!({"progressToken": 1, "claudecode/toolUseId": "toolu_1"})), (None, None));
    }
}
