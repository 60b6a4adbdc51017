use super::*;
use crate::privacy::redact::texts::json::LONGEST_INNER;

#[test]
fn a_text_that_is_json_stays_json_and_its_strings_are_read_as_what_they_mean() {
    let redactor = Redactor::new(&["secrets", "emails", "ips"], &[], None).expect("built-in rules");
    let (key, value) = (HashKey::new(vec![1; 32]), random(32));
    let line = format!("Contact:\nann@example.org\n10.1.2.3\nCookie: sid={value}\nENV API_TOKEN {value}\n");
    let mut text = serde_json::json!([{"role": "system", "content": line, "arguments": "{\"to\":\"\\nann@example.org\"}"}])
        .to_string();
    text.texts(&mut Redaction::new(&redactor, &key));
    let redacted: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let expected = "Contact:\n[redacted:emails]\n[redacted:ips]\nCookie: [redacted:secrets]\nENV API_TOKEN [redacted:secrets]\n";
    assert_eq!(redacted[0]["content"], expected);
    let mut votes: crate::types::FreeForm =
        serde_json::from_str(r#"{"ann@example.org": 3, "bob@example.org": 5}"#).expect("an object");
    votes.texts(&mut Redaction::new(&redactor, &key));
    let votes: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(votes.as_str()).expect("JSON");
    assert_eq!(votes.values().collect::<Vec<_>>(), [3, 5], "{votes:?}");
    assert_eq!(redacted[0]["arguments"], r#"{"to":"\n[redacted:emails]"}"#);
}

#[test]
fn texts_that_are_json_are_read_to_a_depth_of_eight_in_each_other() {
    let redactor = Redactor::new(&["emails"], &[], None).expect("a built-in rule");
    // The escapes hide the address from who does not read the text as JSON.
    let hidden = |levels: usize| {
        let quoted = |text: &str| text.replace('\\', r"\u005c").replace('"', r"\u0022");
        let address = String::from(r#"["ann\u0040example.org"]"#);
        (0..levels).fold(address, |inner, _| format!("[\"{}\"]", quoted(&inner)))
    };
    for (levels, is_read) in [(0, true), (1, true), (8, true), (9, false), (400, false)] {
        assert_ne!(stored(&redactor, &hidden(levels)) == hidden(levels), is_read, "{levels}");
    }
    let long = |text: &str| serde_json::json!([text, "x".repeat(LONGEST_INNER)]).to_string();
    let [outer, inner] = [long(&hidden(0)), long(&long(&hidden(0)))];
    assert_ne!(stored(&redactor, &outer), outer);
    assert_ne!(stored(&redactor, &inner), inner);
    let deep = |levels: usize| format!("{}{}{}", "[".repeat(levels), hidden(0), "]".repeat(levels));
    assert_ne!(stored(&redactor, &deep(126)), deep(126));
    assert_eq!(stored(&redactor, &deep(127)), deep(127));
    let innermost = long(&inner);
    assert_eq!(stored(&redactor, &innermost), innermost);
}

#[test]
fn the_name_of_a_value_in_json_may_be_another_string() {
    let (redactor, key, value) = (secrets(), HashKey::new(vec![1; 32]), random(24));
    for json in [
        r#"{"name":"DB_PASSWORD","value":"…"}"#,
        r#"{"env": [{"name": "DB_PASSWORD", "value": "…"}, {"name": "HOME", "value": "/root"}]}"#,
        r#"["mysql", "--password", "…", "--host", "db"]"#,
        r#"{"cmd":"ls\n","args":["--api-key","…"]}"#,
        r#"["X-API-Key","…"]"#,
        r#"{"command":["curl","-u","bob:…","https://x"]}"#,
        r#"{"command":["curl","--user","bob:…","https://x"]}"#,
        r#"["mysql","-u","root","-p…","app"]"#,
        r#"{"title":"the api token","text":"is …, ok"}"#,
        r#"{"name":"API_TOKEN","value":"use … here"}"#,
    ] {
        let mut text = json.replace('…', &value);
        let mut redaction = Redaction::new(&redactor, &key);
        text.texts(&mut redaction);
        assert_eq!((text, redaction.spans()), (json.replace('…', "[redacted:secrets]"), 1));
    }
    // The span of the string as it is written ends before the escape.
    let text = stored(&redactor, &format!(r#"{{"password": "{value}\u0026{value}"}}"#));
    assert_eq!(text, r#"{"password": "[redacted:secrets]"}"#);
    let text =
        stored(&redactor, &format!(r#"{{"title":"the api token","text":"\u00e9\t{value}\\, \"ok\""}}"#));
    assert_eq!(text, r#"{"title":"the api token","text":"é\t[redacted:secrets]\\, \"ok\""}"#);
    let bot = format!("MTI{}.GaBcDe.{}", random(23), random(38));
    let text = stored(&redactor, &format!(r#"{{"service":"discord","note":"bot is {bot} now"}}"#));
    assert_eq!(text, r#"{"service":"discord","note":"bot is [redacted:secrets] now"}"#);
    // A span of the text as it is written may begin and end within an escape.
    let json = format!(r#"["--password","\u00e9{value}\n","\n{value}\\"]"#);
    let mut text = json.clone();
    text.texts(&mut Redaction::new(&redactor, &key));
    serde_json::from_str::<Vec<String>>(&text).expect("JSON");
}

#[test]
fn secrets_in_json_are_found_however_they_are_written_there_and_the_rest_stays_as_it_was() {
    let (redactor, key) = (secrets(), HashKey::new(vec![1; 32]));
    let (token, value) = (format!("ghp_{}", random(36)), random(32));
    let escaped: String =
        token.chars().flat_map(|c| format!("\\u{:04x}", u32::from(c)).into_bytes()).map(char::from).collect();
    for (before, after) in [
        (format!(r#"{{"a": "{escaped}", "n": 1.50}}"#), r#"{"a": "[redacted:secrets]", "n": 1.50}"#),
        (
            format!(r#"{{"\u0070assword": "{value}", "b": "\u00e9"}}"#),
            r#"{"\u0070assword": "[redacted:secrets]", "b": "\u00e9"}"#,
        ),
        (
            format!(r#"{{"db": "postgres:\/\/app:{value}@db\/x"}}"#),
            r#"{"db": "postgres://[redacted:secrets]@db/x"}"#,
        ),
        (format!(r#"{{"a": "{token}", "a": 1e2}}"#), r#"{"a": "[redacted:secrets]", "a": 1e2}"#),
        (
            format!(r#"{{"token": ["{value}", {{"x": "{value}"}}, "{value}"], "x": "{value}"}}"#),
            &format!(
                r#"{{"token": ["[redacted:secrets]", {{"x": "{value}"}}, "[redacted:secrets]"], "x": "{value}"}}"#
            ),
        ),
        (
            format!(r#"{{"{token}" : {{}}, "c\\": "\"{token}"}}"#),
            r#"{"[redacted:secrets:01c7a686]" : {}, "c\\": "\"[redacted:secrets]"}"#,
        ),
        (
            format!(r#"{{"{token} password": "{value}", "password": "{value} and {token}"}}"#),
            r#"{"[redacted:secrets:01c7a686] password": "[redacted:secrets]", "password": "[redacted:secrets] and [redacted:secrets]"}"#,
        ),
    ] {
        let mut json: crate::types::FreeForm = serde_json::from_str(&before).expect("an object");
        json.texts(&mut Redaction::new(&redactor, &key));
        assert_eq!(json.as_str(), after, "{before}");
    }
}

#[test]
fn of_several_lines_in_a_string_that_begins_with_a_name_only_the_value_is_replaced() {
    let (redactor, value) = (secrets(), random(32));
    for (before, behind) in [
        (r#"{"content": "API_KEY="#, r#"\nPORT=3000\nNODE_ENV=production\n"}"#),
        (r#"{"content": "api_key: "#, r#"\r\nport: 3000"}"#),
        (r#"printf "API_TOKEN="#, r#"\n\nPORT=3000" > .env"#),
        (r#"{"a": "{\"b\": \"API_KEY="#, r#"\\nPORT=3000\\n\"}"}"#),
        (r"print('API_KEY=", r"\n')"),
        (r#"{"content": "DEBUG=true\nAPI_KEY="#, r#""}"#),
        (r#"f.write("x\nAPI_KEY="#, r#"");"#),
        (r#"{"a": [{"b": "{\"c\": \"x\\nAPI_KEY="#, r#"\"}"}]}"#),
    ] {
        let text = format!("{before}{value}{behind}");
        assert_eq!(redacted(&redactor, &text), format!("{before}[redacted:secrets]{behind}"), "{text}");
    }
    // A password may have a backslash.
    let text = format!(r"printf 'PASSWORD={value}\nq8#Lw' > f");
    assert_eq!(redacted(&redactor, &text), "printf 'PASSWORD=[redacted:secrets]' > f");
}

#[test]
fn a_secret_beside_half_of_a_surrogate_pair_in_json_is_replaced() {
    let (redactor, key) = (secrets(), HashKey::new(vec![1; 32]));
    let token = format!("ghp_{}", random(36));
    for (json, beginning) in [
        (r#"["\ud83d …"]"#, "[\"\u{fffd} [redacted:secrets]\"]"),
        (
            r#"{"cut": "\ude00", "password": "…\ud83d"}"#,
            r#"{"cut": "\ude00", "password": "[redacted:secrets]"#,
        ),
        (r#"{"\ud83d …": 1}"#, "{\"\u{fffd} [redacted:secrets:"),
    ] {
        let mut text = json.replace('…', &token);
        text.texts(&mut Redaction::new(&redactor, &key));
        assert!(!text.contains(&token) && text.starts_with(beginning), "{text}");
        serde_json::from_str::<serde::de::IgnoredAny>(&text).expect("JSON");
    }
}
