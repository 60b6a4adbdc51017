//! Redaction: private spans of a text are replaced before anything is written or logged.
//!
//! A rule is a name and regular expressions. Those of built-in rules have *anchors*, texts without which they cannot
//! match: one pass over a text finds the anchors in it, and most texts have none.

mod commands;
mod named;
mod random;
pub mod rules;
mod secrets;
mod texts;

use std::net::IpAddr;
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use nix::time::{ClockId, clock_gettime};
use regex::{Captures, Match, Regex, RegexBuilder};

use super::hash_key::HashKey;

pub use rules::RedactRules;
pub use secrets::issuers;
pub use texts::{GroupName, Redaction, Texts};

/// The names of the built-in rules.
pub const BUILTIN: [&str; 4] = ["secrets", "emails", "ips", "home-paths"];

/// The name that all rules of projects have in metrics.
pub const CUSTOM: &str = "custom";

/// The maximum number of bytes that one custom expression may take when compiled.
const CUSTOM_SIZE: usize = 64 << 10;

/// The processor time that custom expressions may take with a text, and with each byte of it. Most need a tenth of it.
const CUSTOM_TIME: (Duration, Duration) = (Duration::from_micros(50), Duration::from_nanos(200));

/// The processor time that custom expressions may take beyond that, until the rules of the project are read again. They
/// need some at first, when the automata are built.
const CUSTOM_SPARE: Duration = Duration::from_millis(250);

/// The maximum number of spans of an event that are replaced one by one. A name in a replacement may be longer than what
/// it replaces, so that the event would become too long.
const MOST_SPANS: usize = 100_000;

/// A regular expression with its anchors: one of them occurs in each match, in upper or lower case.
struct Pattern {
    anchors: Vec<&'static str>,
    /// The span to replace is the first of its groups that is part of the match, or the whole match.
    regex: String,
    /// Whether a match begins with the anchor, which must not be inside a word.
    begins_with_anchor: bool,
    /// Decides whether a matching span is replaced.
    accepts: fn(&str) -> bool,
}

fn always(_: &str) -> bool {
    true
}

/// A compiled expression of a rule.
struct Compiled {
    /// The rule's number. The built-in rules of a choice come first, then the custom ones.
    rule: usize,
    regex: Regex,
    begins_with_anchor: bool,
    accepts: fn(&str) -> bool,
}

/// Some of the built-in rules, compiled.
struct Builtin {
    names: Vec<&'static str>,
    /// The expressions that are tried at the occurrences of their anchors.
    anchored: Vec<Compiled>,
    anchors: AhoCorasick,
    /// The number in `anchored` of the expression to which each anchor belongs.
    owners: Vec<usize>,
    /// The expressions that are tried on every text.
    others: Vec<Compiled>,
}

impl Builtin {
    /// Returns the rules with these names. Each choice of rules is compiled only once, because that takes some
    /// milliseconds, and projects are read again every few seconds.
    fn of(names: &[&str]) -> &'static Self {
        static CHOICES: [OnceLock<Builtin>; 1 << BUILTIN.len()] =
            [const { OnceLock::new() }; 1 << BUILTIN.len()];
        let chosen = |(bit, name): (usize, &&str)| usize::from(names.contains(name)) << bit;
        let choice: usize = BUILTIN.iter().enumerate().map(chosen).sum();
        CHOICES[choice].get_or_init(|| Self::compile(names))
    }

    fn compile(chosen: &[&str]) -> Self {
        let names: Vec<_> = BUILTIN.into_iter().filter(|name| chosen.contains(name)).collect();
        let (mut anchored, mut others) = (Vec::new(), Vec::new());
        let (mut anchors, mut owners): (Vec<&str>, _) = (Vec::new(), Vec::new());
        for (rule, name) in names.iter().enumerate() {
            for Pattern { anchors: own, regex, begins_with_anchor, accepts } in patterns(name) {
                let regex = Regex::new(&regex).expect("the built-in expressions are valid");
                let compiled = Compiled { rule, regex, begins_with_anchor, accepts };
                if own.is_empty() {
                    others.push(compiled);
                } else {
                    owners.extend(own.iter().map(|_| anchored.len()));
                    anchors.extend(own);
                    anchored.push(compiled);
                }
            }
        }
        // The largest kind of automaton reads each byte once, and needs no other memory.
        let anchors = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(anchors)
            .expect("the anchors are few enough");
        Self { names, anchored, anchors, owners, others }
    }
}

/// Replaces the private spans of texts by a project's rules.
pub struct Redactor {
    builtin: &'static Builtin,
    custom: Vec<Compiled>,
    /// The names of the custom rules, whose numbers follow those of the built-in ones.
    custom_names: Vec<Box<str>>,
    /// What is left of [`CUSTOM_SPARE`].
    spare: Mutex<Duration>,
    /// Makes the tags by which equal spans are recognized.
    tags: Option<HashKey>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.builtin.names).entries(&self.custom_names).finish()
    }
}

/// A span of a text that will be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    start: usize,
    end: usize,
    rule: usize,
}

impl Redactor {
    /// Makes a redactor of some of the [`BUILTIN`] rules, and of custom ones, which are names and expressions. With
    /// `tags`, equal spans are replaced by equal texts. Fails with the number of a custom expression that is invalid
    /// or too large, and the reason.
    pub fn new(
        builtin: &[&str],
        custom: &[(&str, &str)],
        tags: Option<HashKey>,
    ) -> Result<Self, (usize, String)> {
        let builtin = Builtin::of(builtin);
        let compile = |(number, (_, expression)): (usize, &(&str, &str))| {
            let regex =
                RegexBuilder::new(expression).size_limit(CUSTOM_SIZE).dfa_size_limit(CUSTOM_SIZE).build();
            let regex = regex.map_err(|error| (number, error.to_string()))?;
            let rule = builtin.names.len() + number;
            Ok(Compiled { rule, regex, begins_with_anchor: false, accepts: always })
        };
        Ok(Self {
            builtin,
            custom: custom.iter().enumerate().map(compile).collect::<Result<_, _>>()?,
            custom_names: custom.iter().map(|(name, _)| (*name).into()).collect(),
            spare: Mutex::new(CUSTOM_SPARE),
            tags,
        })
    }

    /// Returns whether there are custom rules, whose expressions may take long.
    pub(super) fn has_custom(&self) -> bool {
        !self.custom.is_empty()
    }

    /// Returns whether a text may have a span to replace, after one pass over it. The text may also be JSON, in which
    /// strings are escaped.
    #[must_use]
    pub fn may_match(&self, text: &str) -> bool {
        self.has_custom() || !self.builtin.others.is_empty() || self.builtin.anchors.is_match(text)
    }

    /// Returns the private spans of a text that end behind `start`, in their order and apart from each other, but no more
    /// than `most`, unless a built-in rule finds more.
    fn spans(&self, text: &str, start: usize, most: usize) -> Vec<Span> {
        let mut spans = self.of_builtin(text);
        if self.has_custom() {
            self.collect_custom(text, most, &mut spans);
        }
        spans.retain(|span| span.end > start);
        spans.sort_unstable();
        // A span that begins within another one is replaced together with it.
        spans.dedup_by(|next, span| {
            let is_within = next.start < span.end;
            if is_within {
                span.end = span.end.max(next.end);
            }
            is_within
        });
        spans
    }

    /// Returns the spans of a text that the built-in rules find, in any order.
    fn of_builtin(&self, text: &str) -> Vec<Span> {
        let Builtin { anchored, anchors, owners, others, .. } = self.builtin;
        let mut spans = Vec::new();
        // How far each expression has searched.
        let mut looked: Vec<(usize, usize)> = Vec::new();
        for hit in anchors.find_overlapping_iter(text) {
            let owner = owners[hit.pattern().as_usize()];
            let known = looked.iter().position(|(of, _)| *of == owner);
            // A token that extends to the end may contain its own beginning any number of times.
            if known.is_some_and(|known| hit.start() < looked[known].1) {
                continue;
            }
            let compiled = &anchored[owner];
            let end = if compiled.begins_with_anchor {
                compiled.collect_at(text, hit.start(), &mut spans)
            } else {
                compiled.collect(text, &mut spans);
                text.len()
            };
            match known {
                Some(known) => looked[known].1 = end,
                None => looked.push((owner, end)),
            }
        }
        for other in others {
            other.collect(text, &mut spans);
        }
        spans
    }

    /// Returns a text from `start` on with replacements for these spans, whose tags are made with a key if there is one.
    /// Returns none if there are no spans.
    fn replace(&self, text: &str, start: usize, spans: &[Span], tags: Option<&HashKey>) -> Option<String> {
        if spans.is_empty() {
            return None;
        }
        let mut redacted = String::with_capacity(text.len() - start);
        let mut end = start;
        for span in spans {
            // The text before `start` stays, and a span that begins there is replaced from `start` on.
            let begin = span.start.max(start);
            redacted.push_str(&text[end..begin]);
            redacted.push_str("[redacted:");
            redacted.push_str(self.name(span.rule));
            if let Some(key) = tags {
                let hash = key.hash(&text.as_bytes()[begin..span.end]);
                redacted.push(':');
                redacted.extend(hash[..4].iter().map(|byte| format!("{byte:02x}")));
            }
            redacted.push(']');
            end = span.end;
        }
        redacted.push_str(&text[end..]);
        Some(redacted)
    }
}

impl Redactor {
    /// Adds the spans of a text that match a custom expression. A search takes linear time, but each search may read the
    /// whole rest of the text. What has not been searched when the time is over, or when there are more than `most`
    /// spans, is replaced as a whole.
    fn collect_custom(&self, text: &str, most: usize, spans: &mut Vec<Span>) {
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let (base, of_byte) = CUSTOM_TIME;
        let own = base + of_byte.saturating_mul(u32::try_from(text.len()).unwrap_or(u32::MAX));
        let begun = processor_time();
        let end = begun + own + *spare();
        let most = spans.len() + most;
        for custom in &self.custom {
            custom.collect_until(end, most, text, spans);
        }
        let beyond = processor_time().saturating_sub(begun).saturating_sub(own);
        let mut spare = spare();
        *spare = spare.saturating_sub(beyond);
    }

    fn name(&self, rule: usize) -> &str {
        let builtin = &self.builtin.names;
        builtin.get(rule).copied().unwrap_or_else(|| &self.custom_names[rule - builtin.len()])
    }
}

impl Compiled {
    /// Adds the span that begins at an anchor, if it matches. A text inside a word, such as the `sk-` of `task-…`, is
    /// not an anchor. Returns where the span ends, or the position of the anchor if there is no span.
    fn collect_at(&self, text: &str, at: usize, spans: &mut Vec<Span>) -> usize {
        let before = &text[..at];
        let is_within_word = before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if is_within_word && !ends_with_code(before) {
            return at;
        }
        let Some(found) = self.regex.find(&text[at..]) else { return at };
        spans.push(Span { start: at, end: at + found.end(), rule: self.rule });
        at + found.end()
    }

    /// Adds the spans of a text that match. What is behind a span may also be the beginning of the next match.
    fn collect(&self, text: &str, spans: &mut Vec<Span>) {
        let mut at = 0;
        while let Some(captures) = self.regex.captures_at(text, at) {
            let Some(found) = meant(&captures) else { return };
            // A group of this name is what must not be taken for a span.
            if captures.name("other").is_none() {
                spans.extend(self.span(&captures));
            }
            at = found.end();
        }
    }

    /// Adds the spans of a text that match, until this thread has taken so much processor time, or there are more than
    /// `most`. The rest of the text is a span then.
    fn collect_until(&self, end: Duration, most: usize, text: &str, spans: &mut Vec<Span>) {
        if processor_time() > end {
            spans.push(Span { start: 0, end: text.len(), rule: self.rule });
            return;
        }
        for captures in self.regex.captures_iter(text) {
            if spans.len() >= most || processor_time() > end {
                let start = captures.get(0).map_or(0, |found| found.start());
                spans.push(Span { start, end: text.len(), rule: self.rule });
                return;
            }
            spans.extend(self.span(&captures));
        }
    }

    /// Returns the part of a match that is replaced.
    fn span(&self, captures: &Captures<'_>) -> Option<Span> {
        let span = meant(captures)?;
        let is_meant = (self.accepts)(span.as_str());
        is_meant.then(|| Span { start: span.start(), end: span.end(), rule: self.rule })
    }
}

/// Returns the part of a match that its expression is about, unless it is empty: the first of its groups that are part of
/// the match, or all of it.
fn meant<'a>(captures: &Captures<'a>) -> Option<Match<'a>> {
    let group = captures.iter().skip(1).flatten().next();
    group.or_else(|| captures.get(0)).filter(|span| !span.is_empty())
}

/// A code for other characters: an escape of JSON or of a programming language, a color of a terminal, or a percent code of
/// an address. Its last letter is not part of a word.
const CODE: &str = r"(?:(?:\x1b|\\(?:u001[bB]|x1[bB]|e|033))\[[0-9;]{0,12}[A-Za-z]|\\(?:[abefnrtv0]|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|033)|%[0-9A-Fa-f]{2})";

/// The maximum number of bytes of such a code.
const LONGEST_CODE: usize = 20;

/// Returns whether a text ends with such a code.
fn ends_with_code(text: &str) -> bool {
    static END: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(&format!("{CODE}$")).expect("the pattern is valid"));
    END.is_match(&text[text.ceil_char_boundary(text.len().saturating_sub(LONGEST_CODE))..])
}

/// Returns the processor time that this thread has taken, which does not grow while others work.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Returns the patterns of a built-in rule.
fn patterns(name: &str) -> Vec<Pattern> {
    let pattern = |anchors: &[&'static str], regex: &str, accepts: fn(&str) -> bool| {
        vec![Pattern {
            anchors: anchors.to_vec(),
            regex: regex.to_owned(),
            begins_with_anchor: false,
            accepts,
        }]
    };
    match name {
        "secrets" => secrets::patterns(),
        "emails" => pattern(
            &["@"],
            r"\b([A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,8}[A-Za-z]{2,24})\b",
            always,
        ),
        "ips" => [
            // IP addresses of version 4, also before a port.
            r"(?:^|[^0-9A-Za-z.:])((?:[0-9]{1,3}\.){3}[0-9]{1,3})(?:$|[^0-9A-Za-z.]|\.(?:$|[^0-9A-Za-z]))",
            // Those of version 6, also with one of version 4 as their end (RFC 4291, section 2.2).
            r"(?:^|[^0-9A-Za-z.:])((?:[0-9A-Fa-f]{0,4}:){2,7}(?:(?:[0-9]{1,3}\.){3}[0-9]{1,3}|[0-9A-Fa-f]{0,4}))(?:$|[^0-9A-Za-z.:]|[.:](?:$|[^0-9A-Za-z]))",
        ]
        .into_iter()
        .flat_map(|regex| pattern(&[], regex, is_address))
        .collect(),
        "home-paths" => pattern(
            &["/home/", "/users/", r":\users\", r":\\users\\"],
            r#"(/home/[^/\s"'<>:;,()]+|/Users/[^/\s"'<>:;,()]+|[A-Za-z]:\\{1,2}Users\\{1,2}[^\\\s"'<>:;,()]+)"#,
            always,
        ),
        _ => Vec::new(),
    }
}

/// Returns whether a text is an address of another machine.
fn is_address(text: &str) -> bool {
    let address = text.parse::<IpAddr>().map(|address| address.to_canonical());
    address.is_ok_and(|address| !address.is_loopback() && !address.is_unspecified())
}

#[cfg(test)]
mod tests;
