use serde_json::json;

use super::texts::effort;
use super::*;

#[test]
fn a_text_of_nothing_but_names_is_read_in_linear_time() {
    let redactor = secrets();
    for name in [
        "token ",
        "token=",
        "token.",
        "token='",
        "token(\"",
        "token: [",
        "api_key,",
        "secret\n",
        "\"token\":\n",
        "password x token=abcd ",
        "pwd=",
        "pwd:",
        "pwd='pwd",
        "a.pwd-",
        "token_id:",
        "arn:aws:secret:",
        "token:f(a)",
        "token:aB1cD2::",
        "token_id:f(a)",
        "password is ",
        "password: ",
        "authorization value=",
        "cookie value=a=b;",
        "\"username\":\"a\",\"key\":\"b\",",
        "\"random_password\"",
        ".vault.azure.net/secrets/a\"",
        "CAQIBAAK",
        "MIIEpAIBAAKC",
        "accounts:[\"0x",
        "secret\\n[",
        "token,a\n",
        "token\n---\n",
        "a|token|",
        "token\t",
        "insert into a (token) values ",
        "insert into a (token) values (",
        "insert into a (token, /*",
        "insert into a (token) values (--",
        "insert into a (token) values ('a') /* ",
        "insert into a (token) values\n-- a\n('a'),\n",
        "copy a (token) from stdin; ",
        "a,token\n1,\"",
        "token\ta\n\"\n",
        "[token] aB3xY9kQ2mZ7vN4r ",
        "token-1 | token.go:1: INFO token: ",
        "x,y\n---\na,token\n",
        "TOKEN  A\n",
        "PW  ",
        "# token: [\"qQ7xK2mZ9vB4nR8t\"\n",
        "// token: [\"qQ7xK2mZ9vB4nR8t\"\n",
        "token: # ",
        "token: [ # ",
        "token: [a ",
        "password [|",
        "token: [a; ",
        "token = [\n// ",
        "token = f(\n",
        "token = token(token[",
        "token = new[] { ",
        "token: a b c = &[\n",
        "x \"password\":\"qQ7xK2mZ9vB4nR8t\", ",
        "token\n\"qQ7xK2mZ9vB4nR8t\" a ",
        "  - token:\n",
        "\u{1b}[1mpwd=",
        "\u{1b}[",
        "cookies = {",
        "cookie('",
        "cookie]=",
        "\"httpOnly\": a, ",
        "echo a | ",
        "\"a\" |\n",
        "cat <<EOF | ",
        "chpasswd:\n",
    ] {
        let taken = |bytes: usize| time_of(&redactor, &name.repeat(bytes / name.len()));
        let [short, long] = [1 << 16, 1 << 19].map(taken);
        // A search from each name to the end takes 64 times as long.
        assert!(long < 24 * short + Duration::from_millis(100), "{name}: {short:?}, {long:?}");
    }
}

#[test]
fn a_call_with_a_very_long_name_and_many_arguments_is_read_in_linear_time() {
    let redactor = secrets();
    let taken = |bytes: usize| {
        let text = format!("{}.sequelize({}", "a".repeat(bytes / 2), "\"b\", ".repeat(bytes / 10));
        time_of(&redactor, &text)
    };
    let [short, long] = [1 << 16, 1 << 19].map(taken);
    assert!(long < 24 * short + Duration::from_millis(100), "{short:?}, {long:?}");
}

/// Returns how long the processor works on the redaction of a text.
fn time_of(redactor: &Redactor, text: &str) -> Duration {
    let begun = processor_time();
    redacted(redactor, text);
    processor_time().saturating_sub(begun)
}

#[test]
fn a_text_of_nothing_but_beginnings_of_tokens_is_looked_at_once() {
    // Looked at from each beginning to the end, these would take hours.
    let redactor = secrets();
    for shape in SHAPES_THAT_HOLD_THEMSELVES {
        let text = shape.repeat((2 << 20) / shape.len());
        assert_eq!(redacted(&redactor, &text), "[redacted:secrets]", "{shape}");
    }
    let alternating = SHAPES_THAT_HOLD_THEMSELVES.concat().repeat(20_000);
    assert!(redacted(&redactor, &alternating).len() < alternating.len() / 2);
}

/// Beginnings of tokens that may stand in such tokens.
const SHAPES_THAT_HOLD_THEMSELVES: [&str; 5] = ["xoxb-", "glpat-", "sk-ant-", "xoxe.", "xapp-"];

#[test]
fn a_long_name_is_not_looked_at_again_for_each_of_its_values() {
    let (redactor, key) = (secrets(), HashKey::new(vec![1; 32]));
    let name = "token".repeat(200_000);
    let value = serde_json::json!({ name.as_str(): vec!["a"; 100_000], "password": [random(32)] });
    let mut metadata = crate::types::FreeForm::of(&value).expect("JSON");
    let mut redaction = Redaction::new(&redactor, &key);
    metadata.texts(&mut redaction);
    assert_eq!(redaction.spans(), 1);
}

#[test]
fn counting_how_long_texts_are_changes_nothing() {
    let (redactor, key) = (secrets(), HashKey::new(vec![1; 32]));
    let secret = format!("API_TOKEN={}", random(32));
    let mut texts = vec![secret.clone(), serde_json::json!({ "text": secret }).to_string()];
    let (mut hash, mut id) = (vec![1], uuid::Uuid::nil());
    let (before, mut counting) = (texts.clone(), Redaction::counting(&redactor, &key));
    texts.texts(&mut counting);
    counting.hide(&mut hash);
    counting.hide_id(&mut id);
    assert_eq!((&texts, hash, id), (&before, vec![1], uuid::Uuid::nil()));
    let one = counting.counted();
    texts.texts(&mut counting);
    assert_eq!(counting.counted(), 2 * one, "texts add up");
}

#[test]
fn what_many_replacements_add_to_an_event_is_bounded() {
    let name = "n".repeat(50);
    let each = Redactor::new(&[], &[(&name, "[a-z]")], None).expect("an expression");
    let (key, text) = (HashKey::new(vec![1; 32]), "a1".repeat(MOST_SPANS * 2));
    let mut redaction = Redaction::new(&each, &key);
    let mut texts = vec![text.clone(), text.clone(), "1".to_owned(), "a".to_owned()];
    texts.texts(&mut redaction);
    assert!(texts[0].starts_with(&format!("[redacted:{name}]1[redacted:{name}]1")));
    assert!(texts[0].len() < text.len() * 3 / 2 + (2 << 10), "{} bytes", texts[0].len());
    // The text goes on without names, and its last replacement is one of all that is left.
    assert!(texts[0].ends_with(&format!("*1*1[redacted:{name}]")));
    assert_eq!(texts[0].matches('1').count(), MOST_SPANS);
    assert_eq!(texts[1..], ["*", "1", "*"]);
}

#[test]
fn a_text_with_very_many_secrets_goes_as_a_whole() {
    let (redactor, key) = (Redactor::new(&["emails"], &[], None).expect("a rule"), HashKey::new(vec![1; 32]));
    let many = "a@b.org ".repeat(MOST_SPANS + 1);
    let text = serde_json::json!({ "some": "text", "many": [&many, 17] }).to_string();
    let mut texts = vec![many, text];
    let mut redaction = Redaction::new(&redactor, &key);
    texts.texts(&mut redaction);
    assert_eq!(texts, ["[redacted:emails]", r#"{"many":["*",17],"some":"*"}"#]);
    assert_eq!(redaction.spans(), 3);
}

#[test]
fn the_members_of_an_object_stay_apart_if_there_is_no_room_for_replacements_of_their_names() {
    let (redactor, key) = (Redactor::new(&["emails"], &[], None).expect("a rule"), HashKey::new(vec![1; 32]));
    let names = (0..1_000).map(|n| format!("{n}@b.org"));
    let object: serde_json::Map<_, _> = names.map(|name| (name, serde_json::Value::from(1))).collect();
    let mut text = serde_json::Value::from(object).to_string();
    let before = text.len();
    text.texts(&mut Redaction::new(&redactor, &key));
    let redacted: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&text).expect("an object");
    assert_eq!(redacted.len(), 1_000);
    assert!(
        redacted.keys().any(|name| name.starts_with('*'))
            && redacted.keys().any(|name| name.starts_with('['))
    );
    assert!(!text.contains("@b.org") && text.len() < before * 3, "{} bytes", text.len());
}

#[test]
fn the_texts_of_an_event_become_longer_by_a_half_at_most_and_a_name_by_little() {
    let (name, key) = ("n".repeat(50), HashKey::new(vec![1; 32]));
    let each = Redactor::new(&["emails"], &[(&name, "a")], Some(key.clone())).expect("an expression");
    let json = |text: &str| serde_json::json!({ "a": text, "b": [text, text] }).to_string();
    for length in [1, 100, 10_000] {
        let text = "a".repeat(length);
        let before = vec![text.clone(), json(&text), serde_json::json!([json(&text)]).to_string()];
        let (mut texts, mut redaction) = (before.clone(), Redaction::new(&each, &key));
        texts.texts(&mut redaction);
        let [before, after] = [before, texts].map(|texts| texts.concat());
        assert!(after.len() <= before.len() * 3 / 2 + (1 << 10), "{length}: {} bytes", after.len());
        assert!(!after.contains("aa") && after.contains("[redacted:nnnn"), "{after:.300}");
    }
    let names = ["a".repeat(200), format!("{}b", "a".repeat(199))].map(|mut name| {
        name.group_name(&mut Redaction::new(&each, &key));
        name
    });
    assert!(names.iter().all(|name| name.len() <= 800));
    assert_ne!(names[0], names[1]);
}

#[test]
fn of_very_many_lines_the_first_are_read_without_what_stands_before_them() {
    let text = "+a\n".repeat(3 * lines::MOST_LINES);
    let lengths: Vec<_> = lines::views(&text).map(|plain| plain.text.len()).collect();
    assert_eq!(lengths, [text.len() - lines::MOST_LINES]);
}

#[test]
fn a_text_that_is_json_in_json_takes_as_much_effort_as_a_longer_one() {
    let plain = "token = ".repeat(100);
    let nested = (0..7).fold(plain.clone(), |text, _| json!({"a": text, "b": ""}).to_string());
    assert_eq!(effort(&plain), plain.len());
    assert!(effort(&nested) > 5 * nested.len(), "{} and {}", effort(&nested), nested.len());
}
