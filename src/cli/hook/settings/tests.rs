use proptest::prelude::*;

use super::*;

fn group(event: &'static str, url: &str) -> Group {
    let hook = Hook {
        kind: "http",
        url: Some(url.to_owned()),
        command: None,
        timeout: 1,
        headers: None,
        allowed_env_vars: None,
    };
    Group { event, of_tools: event == "PostToolUse", hook }
}

fn is_ours(hook: &Value) -> bool {
    hook["url"].as_str().is_some_and(|url| url.ends_with("/ours"))
}

fn install(text: &str, url: &str) -> (String, Vec<(String, Change)>) {
    change(text, &[group("PostToolUse", url), group("Stop", url)], is_ours).expect("settings")
}

fn uninstall(text: &str) -> (String, Vec<(String, Change)>) {
    change(text, &[], is_ours).expect("settings")
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
            "url": "http://a/ours",
            "timeout": 1
          }
        ]
      }
    ],
    "Stop": [
      {
        "hooks": [
          {
            "type": "http",
            "url": "http://a/ours",
            "timeout": 1
          }
        ]
      }
    ]
  }
}
"#;
    assert_eq!(text, expected);
    assert_eq!(changes, ["PostToolUse", "Stop"].map(|event| (event.to_owned(), Change::Added)));
    assert_eq!(uninstall(&text).0, "");
}

#[test]
fn what_is_there_stays_and_installing_again_changes_nothing() {
    let (text, changes) = install(SETTINGS, "http://a/ours");
    assert_eq!(changes, ["PostToolUse", "Stop"].map(|event| (event.to_owned(), Change::Added)));
    let bell = r#"            { "hooks": [ { "type": "command", "command": "bell" } ] },"#;
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
fn a_hook_to_another_address_takes_the_place_of_the_one_before() {
    let (text, _) = install(SETTINGS, "http://a/ours");
    let (moved, changes) = install(&text, "http://b/ours");
    assert!(changes.iter().all(|(_, change)| *change == Change::Replaced), "{changes:?}");
    assert_eq!(moved, text.replace("http://a", "http://b"));
    assert_eq!(uninstall(&moved).0, SETTINGS);
}

#[test]
fn settings_are_byte_for_byte_as_they_were_once_hooks_are_taken_out_again() {
    for settings in [
        SETTINGS,
        "{}",
        "{}\n",
        "{ }\n",
        "{\n}\n",
        "{\n  \"a\": 1\n}\n",
        "{\"a\": 1}",
        "{\"a\":1,\"hooks\":{}}",
        "{\"hooks\": {}, \"a\": [1, 2]}\n",
        "{\"hooks\": { \n }}",
        "{\"hooks\": {\"Stop\": []}}",
        "{\"hooks\": {\"Stop\": [ ], \"PostToolUse\": [\n]}}",
        "{\"hooks\":{\"Stop\":[{\"hooks\":[{\"command\":\"bell\"}]}]}}",
        "{\n\t\"hooks\": {\n\t\t\"Stop\": [{\"hooks\": []},],\n\t},\n}",
        "{\r\n  \"a\": 1, // one\r\n  /* two */ \"b\": 2 // three\r\n}\r\n",
    ] {
        let (text, _) = install(settings, "http://a/ours");
        let (bare, changes) = uninstall(&text);
        assert_eq!(bare, settings, "{text}");
        assert!(changes.iter().all(|(_, change)| *change == Change::Removed), "{changes:?}");
        assert_eq!(changes.len(), 2, "{changes:?}");
    }
    assert_eq!(uninstall(SETTINGS), (SETTINGS.to_owned(), Vec::new()));
}

#[test]
fn a_foreign_hook_in_a_group_with_ours_stays() {
    let text = r#"{"hooks": {"Stop": [{"hooks": [{"command": "bell"}, {"url": "http://a/ours"}]}]}}"#;
    let (bare, changes) = uninstall(text);
    assert_eq!(bare, r#"{"hooks": {"Stop": [{"hooks": [{"command": "bell"}]}]}}"#);
    assert_eq!(changes, [("Stop".to_owned(), Change::Removed)]);
    let (text, changes) = change(text, &[group("Stop", "http://a/ours")], is_ours).expect("settings");
    assert_eq!(text.matches("/ours").count(), 1);
    assert_eq!(changes, [("Stop".to_owned(), Change::Replaced)]);
}

#[test]
fn what_somebody_adds_beside_ours_stays() {
    let (text, _) = install("{}", "http://a/ours");
    let text = text.replacen("    ]", ", {\"hooks\": [{\"command\": \"bell\"}]}\n    ]", 1);
    let (bare, _) = uninstall(&text);
    assert!(bare.contains("bell") && !bare.contains("ours"), "{bare}");
    assert!(serde_json::from_str::<Value>(&bare).is_ok(), "{bare}");
}

#[test]
fn hooks_that_are_ours_are_told() {
    let (text, _) = install(SETTINGS, "http://a/ours");
    let hooks = own_hooks(&text, is_ours).expect("settings");
    assert_eq!(hooks.iter().map(|hook| hook["url"].clone()).collect::<Vec<_>>(), ["http://a/ours"; 2]);
}

#[test]
fn settings_of_another_shape_are_refused() {
    for text in [
        "[",
        "[]",
        "1",
        "{'a': 1}",
        "{a: 1}",
        r#"{"hooks": 1}"#,
        r#"{"hooks": {}, "hooks": {}}"#,
        r#"{"hooks": {"Stop": [], "Stop": []}}"#,
        r#"{"hooks": {"Stop": {}}}"#,
    ] {
        assert!(change(text, &[group("Stop", "http://a/ours")], is_ours).is_err(), "{text}");
    }
}

/// Blank space, comments among it.
fn space() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", " ", "\n", "\n    ", "\r\n\t", "/* c */", "// c\n"])
}

/// The text of an object or array of such entries.
fn list(brackets: [char; 2], entries: BoxedStrategy<Vec<String>>) -> BoxedStrategy<String> {
    let parts = (entries, prop::collection::vec(space(), 8), any::<bool>());
    let write = move |(entries, spaces, comma): (Vec<String>, Vec<&str>, bool)| {
        let mut text = String::from(brackets[0]);
        for (place, entry) in entries.iter().enumerate() {
            if place > 0 {
                text.push(',');
            }
            text.extend([spaces[place], entry.as_str(), spaces[place + 3]]);
        }
        if comma && !entries.is_empty() {
            text.push(',');
        }
        text.push_str(spaces[7]);
        text.push(brackets[1]);
        text
    };
    parts.prop_map(write).boxed()
}

/// Settings of any look, with hooks of somebody else or without.
fn any_settings() -> BoxedStrategy<String> {
    let bell = Just(r#"{"hooks": [{"command": "bell"}]}"#.to_owned());
    let groups = || list(['[', ']'], prop::collection::vec(bell.clone(), 0..3).boxed());
    let member = |name: &'static str, value: BoxedStrategy<String>| {
        prop::option::of(value.prop_map(move |value| format!("\"{name}\": {value}"))).boxed()
    };
    let members = |one, other| {
        let both = |(one, other): (Option<String>, Option<String>)| one.into_iter().chain(other).collect();
        list(['{', '}'], (one, other).prop_map(both).boxed())
    };
    let hooks = members(member("Stop", groups()), member("Other", groups()));
    members(member("hooks", hooks), member("model", Just("\"large\"".to_owned()).boxed()))
}

proptest! {
    #[test]
    fn whatever_the_settings_installing_and_uninstalling_leaves_their_bytes(text in any_settings()) {
        let (installed, _) = install(&text, "http://a/ours");
        prop_assert_eq!(installed.matches("/ours").count(), 2);
        let (again, _) = install(&installed, "http://a/ours");
        prop_assert_eq!(&again, &installed);
        prop_assert_eq!(uninstall(&installed).0, text);
    }
}
