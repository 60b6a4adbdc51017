//! Hooks in an agent's settings: `{"hooks": {"<event>": [{"matcher": …, "hooks": [<hook>, …]}, …]}}`. The file is the
//! user's; what is not ours stays where and as it is, with its comments.

use std::fmt;

use anyhow::{Context as _, Result};
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use serde_json::Value;

/// A hook for an event.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// The name of the event.
    pub(super) event: &'static str,
    /// Whether the event comes with a tool, so that the hook has to say that it is for all of them.
    pub(super) of_tools: bool,
    /// The hook.
    pub(super) hook: CstInputValue,
}

/// What became of an event's hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The hook was not there.
    Added,
    /// Another one of ours was there.
    Replaced,
    /// The hook was there.
    Kept,
    /// The hook was there and is no longer.
    Removed,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Added => "added",
            Self::Replaced => "replaced",
            Self::Kept => "was there already",
            Self::Removed => "removed",
        })
    }
}

/// The settings `text` with the hooks of `groups` in them and no others that are `ours`; and what became of each event.
pub(super) fn change(
    text: &str,
    groups: &[Group],
    ours: impl Fn(&Value) -> bool,
) -> Result<(String, Vec<(String, Change)>)> {
    let text = if text.trim().is_empty() { "{}\n" } else { text };
    let root = CstRootNode::parse(text, &ParseOptions::default()).context("it is not JSON")?;
    let object = root.object_value().context("it is not a JSON object")?;
    let mut changes = Vec::new();
    if let Some(hooks) = object.get("hooks") {
        let hooks = hooks.object_value().context("its member hooks is not an object")?;
        for event in hooks.properties() {
            let name = event.decoded_name().unwrap_or_default();
            let Some(array) = event.array_value() else { continue };
            let wanted = groups.iter().find(|group| group.event == name);
            let (kept, removed) = sweep(&array, wanted, &ours);
            match (kept, removed) {
                (true, _) => changes.push((name, Change::Kept)),
                (false, 0) => {}
                (false, _) => {
                    let change = if wanted.is_some() { Change::Replaced } else { Change::Removed };
                    changes.push((name, change));
                }
            }
            if removed > 0 && wanted.is_none() && array.elements().is_empty() {
                event.remove();
            }
        }
    }
    for group in groups {
        let done = changes.iter().find(|(event, _)| event == group.event).map(|(_, change)| *change);
        if done != Some(Change::Kept) {
            add(&object, group)?;
        }
        if done.is_none() {
            changes.push((group.event.to_owned(), Change::Added));
        }
    }
    let emptied = !changes.is_empty()
        && object.object_value("hooks").is_some_and(|hooks| hooks.properties().is_empty());
    if let Some(hooks) = object.get("hooks").filter(|_| emptied) {
        hooks.remove();
    }
    Ok((root.to_string(), changes))
}

/// Removes what is `ours` from an event's hooks, but for the one `wanted`: whether that is there, and how many were removed.
fn sweep(array: &CstArray, wanted: Option<&Group>, ours: &impl Fn(&Value) -> bool) -> (bool, usize) {
    let wanted = wanted.map(value);
    let (mut kept, mut removed) = (false, 0);
    for group in array.elements() {
        let Some(hooks) = group.as_object().and_then(|group| group.array_value("hooks")) else { continue };
        let is_wanted = group.to_serde_value() == wanted && wanted.is_some();
        if is_wanted && !std::mem::replace(&mut kept, true) {
            continue;
        }
        let own: Vec<CstNode> = hooks
            .elements()
            .into_iter()
            .filter(|hook| hook.to_serde_value().is_some_and(|hook| ours(&hook)))
            .collect();
        if own.is_empty() {
            continue;
        }
        removed += own.len();
        if own.len() == hooks.elements().len() {
            group.remove();
        } else {
            own.into_iter().for_each(CstNode::remove);
        }
    }
    (kept, removed)
}

fn add(object: &CstObject, group: &Group) -> Result<()> {
    let hooks = object.object_value_or_create("hooks").context("its member hooks is not an object")?;
    let array = hooks.array_value_or_create(group.event);
    let array = array.with_context(|| format!("its hooks for {} are not an array", group.event))?;
    array.ensure_multiline();
    array.append(input(group));
    Ok(())
}

/// An entry for an event: a choice of tools where there is one, and the hook.
fn input(group: &Group) -> CstInputValue {
    let hooks = ("hooks".to_owned(), CstInputValue::Array(vec![group.hook.clone()]));
    let matcher = group.of_tools.then(|| ("matcher".to_owned(), CstInputValue::String("*".to_owned())));
    CstInputValue::Object(matcher.into_iter().chain([hooks]).collect())
}

fn value(group: &Group) -> Value {
    let root = CstRootNode::parse("null", &ParseOptions::default()).expect("null is JSON");
    root.set_value(input(group));
    root.to_serde_value().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jsonc_parser::json;

    fn group(event: &'static str, url: &str) -> Group {
        Group { event, of_tools: event == "PostToolUse", hook: json!({ "type": "http", "url": url }) }
    }

    fn is_ours(hook: &Value) -> bool {
        hook["url"].as_str().is_some_and(|url| url.ends_with("/ours"))
    }

    fn install(text: &str, url: &str) -> (String, Vec<(String, Change)>) {
        change(text, &[group("PostToolUse", url), group("Stop", url)], is_ours).expect("settings")
    }

    /// Settings of somebody who has hooks of their own.
    const SETTINGS: &str = r#"{
    // Mine.
    "model":  "large",
    "hooks": {
        "Stop": [
            { "hooks": [ { "type": "command", "command": "bell" } ] }
        ],
        "Notification": []
    },
    "z": 1
}
"#;

    #[test]
    fn hooks_are_added_to_settings_that_are_not_there() {
        let (text, changes) = install("", "http://a/ours");
        let expected = r#"{
  "hooks": {
    "PostToolUse": [
      {
        "matcher": "*",
        "hooks": [
          {
            "type": "http",
            "url": "http://a/ours"
          }
        ]
      }
    ],
    "Stop": [
      {
        "hooks": [
          {
            "type": "http",
            "url": "http://a/ours"
          }
        ]
      }
    ]
  }
}
"#;
        assert_eq!(text, expected);
        assert_eq!(changes, ["PostToolUse", "Stop"].map(|event| (event.to_owned(), Change::Added)));
    }

    #[test]
    fn what_is_there_stays_and_installing_again_changes_nothing() {
        let (text, changes) = install(SETTINGS, "http://a/ours");
        assert_eq!(changes, ["PostToolUse", "Stop"].map(|event| (event.to_owned(), Change::Added)));
        let bell = r#"            { "hooks": [ { "type": "command", "command": "bell" } ] }"#;
        for kept in
            ["    // Mine.\n    \"model\":  \"large\",", bell, "\"Notification\": []", "    \"z\": 1\n}\n"]
        {
            assert!(text.contains(kept), "{kept} in {text}");
        }
        let (again, changes) = install(&text, "http://a/ours");
        assert_eq!(again, text);
        assert!(changes.iter().all(|(_, change)| *change == Change::Kept));
    }

    #[test]
    fn a_hook_to_another_address_is_replaced() {
        let (text, _) = install(SETTINGS, "http://a/ours");
        let (moved, changes) = install(&text, "http://b/ours");
        assert!(changes.iter().all(|(_, change)| *change == Change::Replaced), "{changes:?}");
        assert_eq!((moved.matches("http://a").count(), moved.matches("http://b").count()), (0, 2));
        assert!(moved.contains("bell"));
    }

    #[test]
    fn hooks_are_taken_out_again() {
        for settings in [SETTINGS, "{}\n", "{\n  \"a\": 1\n}\n"] {
            let (text, _) = install(settings, "http://a/ours");
            let (bare, changes) = change(&text, &[], is_ours).expect("settings");
            let parse = |text: &str| {
                CstRootNode::parse(text, &ParseOptions::default()).expect("JSON").to_serde_value()
            };
            assert_eq!(parse(&bare), parse(settings), "{bare}");
            assert!(changes.iter().all(|(_, change)| *change == Change::Removed), "{changes:?}");
        }
        assert_eq!(change(SETTINGS, &[], is_ours).expect("settings"), (SETTINGS.to_owned(), Vec::new()));
    }

    #[test]
    fn a_foreign_hook_in_a_group_with_ours_stays() {
        let text = r#"{"hooks": {"Stop": [{"hooks": [{"command": "bell"}, {"url": "http://a/ours"}]}]}}"#;
        let (bare, changes) = change(text, &[], is_ours).expect("settings");
        assert_eq!(bare, r#"{"hooks": {"Stop": [{"hooks": [{"command": "bell"}]}]}}"#);
        assert_eq!(changes, [("Stop".to_owned(), Change::Removed)]);
    }

    #[test]
    fn settings_of_another_shape_are_refused() {
        for text in ["[", "[]", "1", r#"{"hooks": 1}"#, r#"{"hooks": {"Stop": {}}}"#] {
            assert!(change(text, &[group("Stop", "http://a/ours")], is_ours).is_err(), "{text}");
        }
    }
}
