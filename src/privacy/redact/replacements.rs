//! What private spans are replaced with, and how a replacement is told from other text.

use std::borrow::Cow;
use std::sync::LazyLock;

use super::expression::Expression;
use super::random::is_random;
use super::value_ends::{beginning, ending};
use super::{Redactor, Span};
use crate::privacy::hash_key::HashKey;

/// The beginning of a replacement. The name of a rule follows, and then a tag, if there is one, and a bracket.
const REPLACEMENT: &str = "[redacted:";

/// The name of the built-in rule of the parts of paths that name a user.
pub(super) const HOME_PATHS: &str = "home-paths";

/// Returns what is behind the home folder with which a path begins, if it was replaced.
#[must_use]
pub fn behind_home(path: &str) -> Option<&str> {
    let rest = path.strip_prefix(REPLACEMENT)?.strip_prefix(HOME_PATHS)?;
    let (tag, behind) = rest.split_once(']')?;
    (tag.is_empty() || tag.starts_with(':')).then_some(behind)
}

/// What a private span becomes if its event has no room for a name, and a text with one in an event of which very many were replaced
/// already.
pub(super) const WITHOUT_NAME: &str = "*";

/// The number of bytes of the tag of a text, which is there for people.
pub(super) const TAG: usize = 4;
/// The number of bytes of the tag in the name of a group, of which no two may be equal.
pub(super) const NAME_TAG: usize = 12;

/// What may be behind the name of the rule: a tag of one of these lengths.
const TAGGED: &str = "(?::[0-9a-f]{8}(?:[0-9a-f]{16})?)?";

/// The maximum number of bytes of a replacement. The name of a rule has at most 50.
const LONGEST: usize = REPLACEMENT.len() + 50 + 2 + 2 * NAME_TAG;

impl Redactor {
    /// Returns a text from `start` on with replacements for these spans, whose tags are made with a key, and have so many bytes,
    /// if there is one. It may become longer by `room`, which is reduced by what it takes; spans behind that get no name. Returns
    /// none if there are no spans.
    pub(super) fn replace(
        &self,
        text: &str,
        start: usize,
        spans: &[Span],
        tags: Option<(&HashKey, usize)>,
        room: &mut usize,
    ) -> Option<String> {
        if spans.is_empty() {
            return None;
        }
        let mut redacted = String::with_capacity(text.len() - start);
        let mut end = start;
        for span in spans {
            // The text before `start` stays, and a span that begins there is replaced from `start` on.
            let begin = span.start.max(start);
            redacted.push_str(&text[end..begin]);
            let name = self.name(span.rule);
            let tag = tags.map_or(0, |(_, length)| 1 + 2 * length);
            let longer = (REPLACEMENT.len() + name.len() + tag + 1).saturating_sub(span.end - begin);
            end = span.end;
            if longer > *room {
                redacted.push_str(WITHOUT_NAME);
                continue;
            }
            *room -= longer;
            redacted.push_str(REPLACEMENT);
            redacted.push_str(name);
            if let Some((key, length)) = tags {
                redacted.push(':');
                redacted.push_str(&self::tag(key, &text[begin..span.end], length));
            }
            redacted.push(']');
        }
        redacted.push_str(&text[end..]);
        Some(redacted)
    }

    /// Returns whether a span is within a replacement of one of the rules, so that a name that was redacted already stays the
    /// same. Nothing can be hidden there but what looks like a tag.
    pub(super) fn is_replaced(&self, text: &str, span: &Span) -> bool {
        let from = text.ceil_char_boundary(span.end.saturating_sub(LONGEST));
        let Some(begin) = text[from..span.end].rfind('[').map(|begin| from + begin) else { return false };
        let replacement = self.replacement(&text[begin..]);
        begin <= span.start && replacement.is_some_and(|length| span.end <= begin + length)
    }

    /// Returns the length of the replacement with which a text begins, if it is exactly what one of the rules writes.
    fn replacement(&self, text: &str) -> Option<usize> {
        let end = text.as_bytes().iter().take(LONGEST).position(|byte| *byte == b']')?;
        let inside = text[..end].strip_prefix(REPLACEMENT)?;
        let (name, tag) = inside.split_once(':').map_or((inside, None), |(name, tag)| (name, Some(tag)));
        let is_tag = |tag: &str| {
            [2 * TAG, 2 * NAME_TAG].contains(&tag.len())
                && tag.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        };
        let is_rule =
            self.builtin.names().any(|own| own == name) || self.custom_names.iter().any(|own| **own == *name);
        (is_rule && tag.is_none_or(is_tag)).then_some(end + 1)
    }
}

/// Returns where what looks like a replacement ends, if one begins at a position.
pub(super) fn end_of_replacement(text: &str, at: usize) -> Option<usize> {
    static REPLACED: LazyLock<Expression> =
        LazyLock::new(|| Expression::builtin(&format!(r"^(?-u)\[redacted:[a-z0-9-]{{1,50}}{TAGGED}\]")));
    REPLACED.find(beginning(&text[at..], LONGEST)).map(|found| at + found.end())
}

/// Returns whether a position is within what looks like a replacement, where the name of a rule may look like one of a secret.
pub(super) fn is_in_replacement(text: &str, at: usize) -> bool {
    let before = ending(&text[..at], LONGEST);
    let begin = before.rfind(REPLACEMENT).map(|begin| at - before.len() + begin);
    begin.and_then(|begin| end_of_replacement(text, begin)).is_some_and(|end| at < end)
}

/// Returns the tag of a text, which is made with a key, and has so many bytes.
pub(super) fn tag(key: &HashKey, text: &str, length: usize) -> String {
    let mut tag = String::with_capacity(2 * length);
    tag.extend(key.hash(text.as_bytes())[..length].iter().map(|byte| format!("{byte:02x}")));
    tag
}

/// Returns a text without what looks like replacements in it, the last of which may be cut off. They say nothing of the text
/// around them, which would otherwise look more random than it did before something in it was replaced. What looks random in
/// the place of the name of a rule may be a secret, and stays.
pub(super) fn without_replacements(text: &str) -> Cow<'_, str> {
    static REPLACEMENTS: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(&format!(r"\[redacted:([a-z0-9-]{{1,50}})(?:{TAGGED}\]|(?::[0-9a-f]{{0,24}})?$)"))
    });
    if !text.contains(REPLACEMENT) {
        return text.into();
    }
    let (mut plain, mut at) = (String::new(), 0);
    for found in REPLACEMENTS.captures_iter(text) {
        plain.push_str(&text[at..found.get_match().start()]);
        plain.extend(found.get(1).map(|name| name.as_str()).filter(|name| is_random(name)));
        at = found.get_match().end();
    }
    plain.push_str(&text[at..]);
    plain.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::privacy::redact::{BUILTIN, GroupName as _, Redaction, Texts as _};

    /// Rules of which one matches its own name, and others parts of any replacement.
    fn redactor(tags: Option<HashKey>) -> Redactor {
        let custom = [("acme", "acme"), ("red", "(?i)red"), ("digits", "[0-9]{4,}")];
        Redactor::new(&BUILTIN, &custom, tags).expect("valid expressions")
    }

    proptest! {
        #[test]
        fn what_is_redacted_twice_is_as_if_redacted_once(
            words in proptest::collection::vec(prop_oneof![
                Just("acme".to_owned()),
                Just("Red".to_owned()),
                Just("ghp_0dZ8sQx3Wv5Lr7Tn1Ky9Mb2Cf4Hg6Jp8aEuI".to_owned()),
                Just("password=mT9x2LqWz7RfK4".to_owned()),
                Just("ann@example.org".to_owned()),
                Just("/home/acme/src".to_owned()),
                Just("[redacted:acme]".to_owned()),
                Just("[redacted:secrets:1f0c22aa]".to_owned()),
                Just("[redacted:other:12345678]".to_owned()),
                "[a-z0-9\\[\\]:]{0,12}",
            ], 0..8),
            is_tagged: bool,
            is_json: bool,
        ) {
            let key = HashKey::new(vec![7; 32]);
            let redactor = redactor(is_tagged.then(|| key.clone()));
            let mut text = words.join(" ");
            if is_json {
                text = serde_json::json!({ "token": text, "list": words }).to_string();
            }
            let mut name = text.clone();
            let mut redact = || {
                let mut redaction = Redaction::new(&redactor, &key);
                text.texts(&mut redaction);
                name.group_name(&mut redaction);
                (text.clone(), name.clone(), redaction.spans())
            };
            let (once, twice) = (redact(), redact());
            prop_assert_eq!(twice, (once.0, once.1, 0));
        }
    }

    #[test]
    fn a_replacement_makes_the_rest_of_a_value_no_more_random() {
        let mut text = r#"{"token":"[redacted:digits]]f0f00"}"#.to_owned();
        let before = text.clone();
        text.texts(&mut Redaction::new(&redactor(None), &HashKey::new(vec![7; 32])));
        assert_eq!(text, before);
    }

    #[test]
    fn only_what_a_rule_writes_is_a_replacement() {
        let redactor = redactor(None);
        for text in ["[redacted:acme]", "[redacted:digits:00112233]", "[redacted:home-paths:aabbccdd]"] {
            assert_eq!(redactor.replacement(text), Some(text.len()), "{text}");
            assert_eq!(redactor.replacement(&format!("{text} acme")), Some(text.len()), "{text}");
        }
        for text in [
            "",
            "acme",
            "[redacted:acme",
            "[redacted:acme:]",
            "[redacted:acme:0011223]",
            "[redacted:acme:001122334]",
            "[redacted:acme:0011223G]",
            "[redacted:other]",
            "[redacted::00112233]",
            "[redacted:acme:00112233:00112233]",
            "[redacted: acme]",
        ] {
            assert_eq!(redactor.replacement(text), None, "{text}");
        }
    }

    #[test]
    fn a_value_is_not_private_for_the_replacements_in_it() {
        let (redactor, key) = (redactor(None), HashKey::new(vec![7; 32]));
        for text in [
            r#"{"token":"][redacted:digits:7f309c2b84bccc41bb76e913]"}"#,
            r#"{"token":"]configuration[redacted:digits:7f309c2b84bccc41bb76e913]"}"#,
            r#"password = "]a[redacted:acme]b[redacted:digits:7f309c2b84bccc41bb76e913]c""#,
        ] {
            for (mut text, before) in
                [(text.to_owned(), text), (format!("see {text}"), &format!("see {text}"))]
            {
                text.texts(&mut Redaction::new(&redactor, &key));
                assert_eq!(text, before);
            }
        }
        for (text, expected) in [
            (r#"password = "]mT9x2Lq[redacted:acme]Wz7RfK4""#, r#"password = "[redacted:secrets]""#),
            (r#"password = "[redacted:x7k2m9q4w8e5r1t6y3u0""#, r#"password = "[redacted:secrets]""#),
            (r#"password = "]x[redacted:k3j4h5g6f7d8s9a0q1]""#, r#"password = "[redacted:secrets]""#),
            (
                r#"token = "[redacted:acme] a[ password=mT9x2LqWz7RfK4 b""#,
                r#"token = "[redacted:acme] a[ password=[redacted:secrets] b""#,
            ),
        ] {
            let mut text = text.to_owned();
            text.texts(&mut Redaction::new(&redactor, &key));
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn what_stands_behind_a_replacement_is_no_value_of_its_name() {
        let key = HashKey::new(vec![7; 32]);
        let redactors = [redactor(Some(key.clone())), redactor(None)];
        for (redactor, number) in redactors.iter().flat_map(|redactor| (0..40).map(move |n| (redactor, n))) {
            let password = crate::privacy::redact::tests::drawn("qQ7xK2mZ9vB4nR8t", 24, number);
            for form in [
                "DATABASE_URL=postgres://app:…@db:5432/shop",
                "https://oauth2:…@gitlab.com/x/y.git",
                "app:…@tcp(db:3306)/x",
                "<code>api_key=&quot;…&quot;</code>",
                "create_engine(\"postgresql://app:…@h/d\")",
                "password=… trace …",
                "password=… '…'",
            ] {
                let mut text = form.replace('…', &password);
                text.texts(&mut Redaction::new(redactor, &key));
                let once = text.clone();
                text.texts(&mut Redaction::new(redactor, &key));
                assert_eq!(text, once);
            }
        }
    }

    #[test]
    fn brackets_hide_no_secret() {
        let (redactor, key) = (redactor(None), HashKey::new(vec![7; 32]));
        let token = "ghp_0dZ8sQx3Wv5Lr7Tn1Ky9Mb2Cf4Hg6Jp8aEuI";
        for (text, expected) in [
            (format!("[redacted:secrets:{token}]"), "[[redacted:red]acted:secrets:[redacted:secrets]]"),
            (format!("[redacted:{token}]"), "[[redacted:red]acted:[redacted:secrets]]"),
            (
                "[redacted:acme]acme[redacted:acme]".to_owned(),
                "[redacted:acme][redacted:acme][redacted:acme]",
            ),
            (
                "[redacted:acme:123456789]".to_owned(),
                "[[redacted:red]acted:[redacted:acme]:[redacted:digits]]",
            ),
        ] {
            let mut redacted = text;
            redacted.texts(&mut Redaction::new(&redactor, &key));
            assert_eq!(redacted, expected);
        }
    }
}
