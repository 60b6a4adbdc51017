//! Plain words for what parsers say, which is made for those who know the types of this program.

/// Says in plain words why a value does not fit. `message` is what `serde` or a parser of parameters says.
#[must_use]
pub(super) fn plain(message: &str) -> String {
    if let Some((given, expected)) =
        split(message, "invalid type: ").or_else(|| split(message, "invalid value: "))
    {
        return format!("must be {}, not {}", expected_words(expected), given_words(given));
    }
    if let Some((length, expected)) = split(message, "invalid length ") {
        return format!("must be {}, not of length {length}", expected_words(expected));
    }
    if message.starts_with("missing field `") {
        return "is missing".to_owned();
    }
    if message.starts_with("duplicate field `") {
        return "is given twice".to_owned();
    }
    if let Some(rest) = message.strip_prefix("unknown field `") {
        return match names(rest) {
            Some(names) => format!("is not known; the known names are {names}"),
            None => "is not known".to_owned(),
        };
    }
    if let Some(rest) = message.strip_prefix("unknown variant `") {
        return match names(rest) {
            Some(names) => format!("must be one of {names}"),
            None => "is not one of the known values".to_owned(),
        };
    }
    match message {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "must be a whole number".to_owned()
        }
        "invalid float literal" | "cannot parse float from empty string" => "must be a number".to_owned(),
        "provided string was not `true` or `false`" => "must be true or false".to_owned(),
        _ => message.to_owned(),
    }
}

/// Takes a message of the form `<kind><given>, expected <expected>` apart.
fn split<'a>(message: &'a str, kind: &str) -> Option<(&'a str, &'a str)> {
    message.strip_prefix(kind)?.rsplit_once(", expected ")
}

/// Reads the names that a message says are expected: ``x`, expected one of `a`, `b```.
fn names(rest: &str) -> Option<String> {
    let (_, expected) = rest.split_once("`, expected ")?;
    let names: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn expected_words(expected: &str) -> &str {
    match expected {
        "a string" | "string" | "a borrowed string" | "str" | "string or map" | "variant identifier" => {
            "a string"
        }
        "a map" | "map" | "an object" => "an object",
        "a sequence" | "sequence" => "an array",
        "a boolean" | "bool" => "true or false",
        "f32" | "f64" => "a number",
        "unit" => "null",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number within its range",
        other if other.starts_with("struct ") || other.starts_with("internally tagged enum ") => "an object",
        other if other.starts_with("enum ") => "a string",
        other if other.starts_with("tuple ") || other.starts_with("an array of length ") => "an array",
        other => other,
    }
}

fn given_words(given: &str) -> String {
    let value = |kind: &str| Some(given.strip_prefix(kind)?.trim_matches('`').to_owned());
    match given {
        "map" => "an object".to_owned(),
        "sequence" => "an array".to_owned(),
        "null" | "unit value" | "Option value" => "null".to_owned(),
        _ if given.starts_with("string ") => "a string".to_owned(),
        _ => value("integer ")
            .or_else(|| value("floating point "))
            .or_else(|| value("boolean "))
            .unwrap_or_else(|| given.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::plain;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ParseResult {
        #[serde(rename = "success")]
        _success: bool,
    }

    #[test]
    fn what_serde_says_is_said_without_names_of_types() {
        let said = |json: &str| {
            let error = serde_json::from_str::<ParseResult>(json).expect_err(json).to_string();
            plain(error.rsplit_once(" at line").expect(&error).0)
        };
        assert_eq!(said("7"), "must be an object, not 7");
        assert_eq!(said("\"a\""), "must be an object, not a string");
        assert_eq!(said("{\"success\": []}"), "must be true or false, not an array");
        assert_eq!(said("{\"success\": {}}"), "must be true or false, not an object");
        assert_eq!(said("{}"), "is missing");
        assert_eq!(said("{\"x\": 1}"), "is not known; the known names are success");
        let count = serde_json::from_str::<u32>("-1").expect_err("negative").to_string();
        assert_eq!(
            plain(count.split(" at line").next().expect("text")),
            "must be a whole number of 0 or more, not -1"
        );
        assert_eq!(plain("unknown variant `x`, expected one of `a`, `b`"), "must be one of a, b");
        assert_eq!(plain("something else"), "something else");
    }
}
