//! The values of Kubernetes secrets, in manifests and as `kubectl get` prints them. The names of some of them say nothing.

use std::ops::Range;
use std::sync::LazyLock;

use super::expression::Expression;
use super::pattern::Pattern;
use super::random::is_random;
use super::value_ends::{beginning, ending};

/// How many lines of a manifest may be between its kind and its data.
const NEAR: usize = 40;

/// How many bytes of JSON may be between them.
const NEAR_IN_JSON: usize = 2 << 10;

/// The least number of characters of a value.
const SHORTEST: usize = 8;

/// The patterns of secrets in YAML and JSON.
pub(super) fn patterns() -> [Pattern; 2] {
    [
        Pattern::values(&["kind: secret", "kind: \"secret", "kind: 'secret"], in_yaml).on_two_lines(),
        Pattern::values(
            &["\"kind\": \"secret", "\"kind\":\"secret", r#"kind\": \"secret"#, r#"kind\":\"secret"#],
            in_json,
        )
        .on_two_lines(),
    ]
}

/// Returns whether the value of a member of `data`, which is base64, or of `stringData` is secret.
fn is_secret(value: &str, is_encoded: bool) -> bool {
    let is_base64 = |c: u8| c.is_ascii_alphanumeric() || b"+/=".contains(&c);
    value.len() >= SHORTEST && if is_encoded { value.bytes().all(is_base64) } else { is_random(value) }
}

/// A line of YAML that is not blank.
struct Line<'t> {
    /// Where what it says begins.
    at: usize,
    /// How many characters are before that, with the sign of an item.
    indent: usize,
    /// Whether it begins an item of a list.
    is_item: bool,
    /// The line without the blanks around it and the sign of an item.
    says: &'t str,
}

impl<'t> Line<'t> {
    /// Returns the lines of a text.
    fn all(text: &'t str) -> Vec<Self> {
        let mut at = 0;
        let line = |line: &'t str| {
            let begin = at;
            at += line.len();
            let whole = line.trim_end();
            let says = whole.trim_start_matches(' ');
            let item = says.strip_prefix("- ").map(|item| item.trim_start_matches(' '));
            let says = item.unwrap_or(says);
            let indent = whole.len() - says.len();
            (!says.is_empty()).then_some(Line { at: begin + indent, indent, is_item: item.is_some(), says })
        };
        text.split_inclusive('\n').filter_map(line).collect()
    }

    /// Returns the kind of an object that the line names, if it names one.
    fn kind(&self) -> Option<&'t str> {
        self.says.strip_prefix("kind:").map(|kind| kind.trim().trim_matches(['"', '\'']))
    }

    /// Returns whether the line is none of an object whose members begin behind so many characters.
    fn is_outside(&self, indent: usize) -> bool {
        self.indent < indent || self.says == "---"
    }
}

fn in_yaml(text: &str) -> Vec<Range<usize>> {
    let lines = Line::all(text);
    let (mut values, mut next) = (Vec::new(), 0);
    while let Some(line) = lines.get(next) {
        let data = next;
        next += 1;
        let (indent, is_encoded) = (line.indent, line.says == "data:");
        if !is_encoded && line.says != "stringData:" {
            continue;
        }
        let members = lines[next..].iter().take_while(|member| member.indent > indent).count();
        let members = &lines[next..next + members];
        next += members.len();
        if !is_of_secret(&lines[..=data], indent, &lines[next..]) {
            continue;
        }
        for member in members {
            let Some((name, value)) = member.says.split_once(": ") else { continue };
            let value = value.trim().trim_matches(['"', '\'']);
            if is_secret(value, is_encoded) {
                let at = member.at + name.len() + member.says[name.len()..].find(value).unwrap_or_default();
                values.push(at..at + value.len());
            }
        }
    }
    values
}

/// Returns whether the lines around the data of an object say that it is a secret. Its members begin behind so many characters.
fn is_of_secret(before: &[Line<'_>], indent: usize, behind: &[Line<'_>]) -> bool {
    let is_own = |line: &&Line<'_>| !line.is_outside(indent);
    let begins = |line: &Line<'_>| line.is_item && line.indent == indent;
    let mut is_begun = false;
    let before = before.iter().rev().take(NEAR).take_while(is_own);
    let before = before.take_while(|line| !std::mem::replace(&mut is_begun, begins(line)));
    let behind = behind.iter().take(NEAR).take_while(is_own).take_while(|line| !begins(line));
    before.chain(behind).filter(|line| line.indent == indent).find_map(Line::kind) == Some("Secret")
}

fn in_json(text: &str) -> Vec<Range<usize>> {
    static DATA: LazyLock<Expression> =
        LazyLock::new(|| Expression::builtin(r#"\\*"(?:(string)D|d)ata\\*"\s*:\s*\{([^{}]*)\}"#));
    static MEMBER: LazyLock<Expression> =
        LazyLock::new(|| Expression::builtin(r#"\\*"\s*:\s*\\*"([^"\\]{8,})\\*""#));
    let mut values = Vec::new();
    for data in DATA.captures_iter(text) {
        let whole = data.get_match();
        if !is_of_secret_in_json(&text[..whole.start()], &text[whole.end()..]) {
            continue;
        }
        let is_encoded = data.get(1).is_none();
        let members = MEMBER.captures_iter(&text[whole.range()]).filter_map(|member| member.meant());
        let secrets = members.filter(|value| is_secret(value.as_str(), is_encoded));
        values.extend(secrets.map(|value| whole.start() + value.start()..whole.start() + value.end()));
    }
    values
}

/// Returns whether a member around the data of an object says that it is a secret.
fn is_of_secret_in_json(before: &str, behind: &str) -> bool {
    static KIND: LazyLock<Expression> =
        LazyLock::new(|| Expression::builtin(r#"\\*"kind\\*"\s*:\s*\\*"Secret\\*""#));
    let (before, behind) = (ending(before, NEAR_IN_JSON), beginning(behind, NEAR_IN_JSON));
    let begin = outside(before.bytes().rev(), b'}', b'{').map_or(0, |bytes| before.len() - bytes);
    let end = outside(behind.bytes(), b'{', b'}').unwrap_or(behind.len());
    KIND.is_match(&before[begin..]) || KIND.is_match(&behind[..end])
}

/// Returns after how many bytes what is read leaves the object that it begins in.
fn outside(mut bytes: impl Iterator<Item = u8>, opens: u8, closes: u8) -> Option<usize> {
    let mut depth = 0;
    bytes.position(|byte| {
        depth += i32::from(byte == opens) - i32::from(byte == closes);
        depth < 0
    })
}
