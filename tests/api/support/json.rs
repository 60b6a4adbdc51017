//! JSON that tests put together, take apart and compare.

use serde_json::{Value, json};

/// An attempt whose program the linter refused.
pub(crate) fn failed(number: i32, program: &str, error: &str) -> Value {
    json!({"attempt": number, "extracted_dsl": program, "parse_result": {"success": true},
        "lint_result": {"valid": false, "errors": [error]}})
}

/// An attempt whose program passed every stage.
pub(crate) fn passed(number: i32, program: &str) -> Value {
    json!({"attempt": number, "extracted_dsl": program, "parse_result": {"success": true},
        "lint_result": {"valid": true}, "compile_result": {"success": true, "step_count": 1}})
}

/// The object with the members of another added or replaced.
pub(crate) fn with(mut object: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().expect("an object") {
        object[name] = value.clone();
    }
    object
}

/// A text as it stands in a path or a query string.
pub(crate) fn encoded(text: &str) -> String {
    let encoded: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
    encoded.replace('+', "%20")
}

/// One member of each of these objects.
pub(crate) fn column(rows: &[Value], name: &str) -> Vec<Value> {
    rows.iter().map(|row| row[name].clone()).collect()
}

/// Asserts that two JSON values are the same but for the last digits of numbers.
#[track_caller]
pub(crate) fn assert_close(value: &Value, expected: &Value) {
    fn close(value: &Value, expected: &Value) -> bool {
        match (value, expected) {
            (Value::Number(a), Value::Number(b)) => {
                let (a, b) = (a.as_f64().expect("a number"), b.as_f64().expect("a number"));
                (a - b).abs() < 1e-6
            }
            (Value::Array(a), Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| close(a, b))
            }
            (Value::Object(a), Value::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| close(a, b)))
            }
            (a, b) => a == b,
        }
    }
    assert!(close(value, expected), "{value:#}\nis not\n{expected:#}");
}
