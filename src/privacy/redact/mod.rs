//! Redaction: private spans of a text are replaced before anything is written or logged.
//!
//! A rule is a name and regular expressions. Those of built-in rules have *anchors*, texts without which they cannot
//! match: one pass over a text finds the anchors in it, and most texts have none.

mod azure;
mod colors;
mod commands;
mod expression;
mod headers;
mod lines;
mod marks;
mod members;
mod named;
mod near_names;
mod other_forms;
mod pairs;
mod plain;
mod private_keys;
mod random;
mod replacements;
pub mod rules;
mod secrets;
mod shapes;
mod tables;
mod texts;
mod value_ends;

use std::net::IpAddr;
use std::ops::Range;
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use nix::time::{ClockId, clock_gettime};

use self::colors::color;
use self::expression::Expression;
use self::plain::Plain;
use self::random::{is_random, is_very_random};
use super::hash_key::HashKey;

pub use rules::RedactRules;
pub use shapes::issuers;
pub use texts::{GroupName, Redaction, Texts};

/// The name of the built-in rule of passwords, keys and tokens.
const SECRETS: &str = "secrets";

/// The names of the built-in rules.
pub const BUILTIN: [&str; 4] = [SECRETS, "emails", "ips", "home-paths"];

/// The name that all rules of projects have in metrics.
pub const CUSTOM: &str = "custom";

/// The processor time that custom expressions may take with a text, and with each byte of it. Most need a tenth of it.
const CUSTOM_TIME: (Duration, Duration) = (Duration::from_micros(50), Duration::from_nanos(200));

/// The processor time that custom expressions may take beyond that, until the rules of the project are read again. They
/// need some at first, when the automata are built.
const CUSTOM_SPARE: Duration = Duration::from_millis(250);

/// The maximum number of spans of an event that are replaced one by one. A name in a replacement may be longer than what
/// it replaces, so that the event would become too long.
const MOST_SPANS: usize = 100_000;

/// What is looked for in a text that has one of some anchors, in upper or lower case.
struct Pattern {
    anchors: Vec<&'static str>,
    finds: Finds,
    /// Whether what is looked for may be on two lines of the text.
    spans_lines: bool,
}

/// How private spans are found. The functions decide whether one is replaced.
enum Finds {
    /// One begins with the anchor, which must not be inside a word.
    Token(Expression, Accepts),
    /// One is the first group that is part of a match, or the whole match.
    Matches(Expression, Accepts),
    /// A function finds them.
    Values(fn(&str) -> Vec<Range<usize>>),
}

type Accepts = fn(&str) -> bool;

impl Pattern {
    fn token(anchor: &'static str, regex: &str, accepts: Accepts) -> Self {
        Self::of(&[anchor], Finds::Token(Expression::builtin(regex), accepts))
    }

    fn matches(anchors: &[&'static str], regex: &str, accepts: Accepts) -> Self {
        Self::of(anchors, Finds::Matches(Expression::builtin(regex), accepts))
    }

    fn values(anchors: &[&'static str], values: fn(&str) -> Vec<Range<usize>>) -> Self {
        Self::of(anchors, Finds::Values(values))
    }

    fn of(anchors: &[&'static str], finds: Finds) -> Self {
        Self { anchors: anchors.to_vec(), finds, spans_lines: false }
    }

    fn on_two_lines(self) -> Self {
        Self { spans_lines: true, ..self }
    }
}

fn always(_: &str) -> bool {
    true
}

/// A compiled expression of a rule.
struct Compiled {
    /// The rule's number. The built-in rules of a choice come first, then the custom ones.
    rule: usize,
    finds: Finds,
    /// As in [`Pattern`].
    spans_lines: bool,
}

/// What is found in a text.
#[derive(Default)]
struct Found {
    /// The spans, in any order.
    spans: Vec<Span>,
    /// Whether the text has colors.
    has_colors: bool,
    /// Whether something else may be on two lines of the text.
    spans_lines: bool,
}

/// Some of the built-in rules, compiled.
struct Builtin {
    names: Vec<&'static str>,
    /// The expressions that are tried at the occurrences of their anchors.
    anchored: Vec<Compiled>,
    anchors: AhoCorasick,
    /// The number in `anchored` of the expression to which each anchor belongs. The next number is that of colors.
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
            for Pattern { anchors: own, finds, spans_lines } in patterns(name) {
                let compiled = Compiled { rule, finds, spans_lines };
                if own.is_empty() {
                    others.push(compiled);
                } else {
                    owners.extend(own.iter().map(|_| anchored.len()));
                    anchors.extend(own);
                    anchored.push(compiled);
                }
            }
        }
        owners.extend(colors::ANCHORS.map(|_| anchored.len()));
        anchors.extend(colors::ANCHORS);
        // The largest kind of automaton reads each byte once, and needs no other memory.
        let anchors = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(anchors)
            .expect("the anchors are few enough");
        Self { names, anchored, anchors, owners, others }
    }

    /// Returns what is found in a text.
    fn search(&self, text: &str) -> Found {
        let mut found = Found::default();
        // How far each expression has searched.
        let mut looked: Vec<(usize, usize)> = Vec::new();
        for hit in self.anchors.find_overlapping_iter(text) {
            let owner = self.owners[hit.pattern().as_usize()];
            let Some(expression) = self.anchored.get(owner) else {
                found.has_colors = true;
                continue;
            };
            found.spans_lines |= expression.spans_lines;
            let known = looked.iter().position(|(of, _)| *of == owner);
            // A token that extends to the end may contain its own beginning any number of times.
            if known.is_some_and(|known| hit.start() < looked[known].1) {
                continue;
            }
            let end = expression.collect(text, hit.start(), &mut found.spans);
            match known {
                Some(known) => looked[known].1 = end,
                None => looked.push((owner, end)),
            }
        }
        for other in &self.others {
            other.collect(text, 0, &mut found.spans);
        }
        found
    }
}

/// Replaces the private spans of texts by a project's rules.
pub struct Redactor {
    builtin: &'static Builtin,
    custom: Vec<Expression>,
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

/// Returns whether the rule `secrets` finds something in a text that is of no project and would be logged.
#[must_use]
pub fn has_secret(text: &str) -> bool {
    static REDACTOR: LazyLock<Redactor> =
        LazyLock::new(|| Redactor::new(&[SECRETS], &[], None).expect("there is no custom rule"));
    REDACTOR.may_match(text) && !REDACTOR.of_builtin(text).is_empty()
}

/// A span of a text that will be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    start: usize,
    end: usize,
    rule: usize,
}

impl Span {
    /// Returns where this span of a text is in the whole one.
    fn in_whole(self, plain: &Plain) -> Self {
        let Range { start, end } = plain.in_whole(self.start..self.end);
        Self { start, end, ..self }
    }
}

/// Puts spans in their order and apart from each other. One that begins within another one is replaced together with it.
fn merge(spans: &mut Vec<Span>) {
    spans.sort_unstable();
    spans.dedup_by(|next, span| {
        let is_within = next.start < span.end;
        if is_within {
            span.end = span.end.max(next.end);
        }
        is_within
    });
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
            Expression::custom(expression).map_err(|error| (number, error))
        };
        Ok(Self {
            builtin,
            custom: custom.iter().enumerate().map(compile).collect::<Result<_, _>>()?,
            custom_names: custom.iter().map(|(name, _)| (*name).into()).collect(),
            spare: Mutex::new(CUSTOM_SPARE),
            tags,
        })
    }

    /// Gives the custom expressions their spare time again.
    pub(super) fn rest(&self) {
        *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = CUSTOM_SPARE;
    }

    /// Returns the number of bytes that the custom expressions take. The built-in rules are there once for all projects.
    pub(super) fn memory(&self) -> usize {
        self.custom.iter().map(Expression::memory).sum()
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
    /// than `most`, unless a built-in rule finds more. What was replaced before is not private any more.
    fn spans(&self, text: &str, start: usize, most: usize) -> Vec<Span> {
        let mut spans = self.of_builtin(text);
        if self.has_custom() {
            self.collect_custom(text, most, &mut spans);
        }
        spans.retain(|span| span.end > start && !self.is_replaced(text, span));
        merge(&mut spans);
        spans
    }

    /// Returns the private spans of the name of a group, as [`Redactor::spans`] does. Custom expressions are tried for as long as
    /// they take, which is not long for a name that is not too long to be one.
    fn spans_of_name(&self, name: &str) -> Vec<Span> {
        if name.len() > LONGEST_NAME {
            return self.spans(name, 0, MOST_SPANS);
        }
        let mut spans = self.of_builtin(name);
        for (number, expression) in self.custom.iter().enumerate() {
            let rule = self.builtin.names.len() + number;
            collect_until(Duration::MAX, usize::MAX, expression, name, rule, &mut spans);
        }
        spans.retain(|span| !self.is_replaced(name, span));
        merge(&mut spans);
        spans
    }

    /// Returns the spans of a text that the built-in rules find, in any order. Colors may be anywhere in a text, so that it
    /// is also searched without them.
    fn of_builtin(&self, text: &str) -> Vec<Span> {
        let (mut spans, has_colors) = self.of_lines(text);
        if has_colors {
            let plain = colors::plain(text);
            let (found, _) = self.of_lines(&plain.text);
            spans.extend(found.into_iter().map(|span| span.in_whole(&plain)));
        }
        spans
    }

    /// Returns the spans of a text, which is also searched without what stands before its lines, and whether it has colors.
    fn of_lines(&self, text: &str) -> (Vec<Span>, bool) {
        let Found { mut spans, has_colors, spans_lines } = self.builtin.search(text);
        for plain in if spans_lines { lines::views(text) } else { Vec::new() } {
            let found = self.builtin.search(&plain.text).spans;
            spans.extend(found.into_iter().map(|span| span.in_whole(&plain)));
        }
        (spans, has_colors)
    }
}

/// The number of bytes that the name of a group has at most.
const LONGEST_NAME: usize = 4 * 200;

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
        for (number, expression) in self.custom.iter().enumerate() {
            collect_until(end, most, expression, text, self.builtin.names.len() + number, spans);
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
    /// Adds the spans of a text that has an anchor at `at`. Returns up to where the text need not be searched again.
    fn collect(&self, text: &str, at: usize, spans: &mut Vec<Span>) -> usize {
        let mut add =
            |found: Range<usize>| spans.push(Span { start: found.start, end: found.end, rule: self.rule });
        match &self.finds {
            Finds::Token(regex, accepts) => {
                let Some(token) = token_at(text, at, regex) else { return at };
                // What is behind an underscore is often the rest of a name.
                if accepts(token) && (!text[..at].ends_with('_') || is_random(token)) {
                    add(at..at + token.len());
                }
                return at + token.len();
            }
            Finds::Matches(regex, accepts) => {
                let mut from = 0;
                // What is behind a span may also be the beginning of the next match.
                while let Some(found) = regex.captures_at(text, from).and_then(|found| found.meant()) {
                    if accepts(found.as_str()) {
                        add(found.range());
                    }
                    from = found.end();
                }
            }
            Finds::Values(values) => values(text).into_iter().for_each(add),
        }
        text.len()
    }
}

/// Returns the token that begins at an anchor. A text inside a word, such as the `sk-` of `task-…`, or inside base64 is not
/// an anchor.
fn token_at<'a>(text: &'a str, at: usize, expression: &Expression) -> Option<&'a str> {
    let before = &text[..at];
    let is_within_word = before.ends_with(|c: char| c.is_ascii_alphanumeric()) && !ends_with_code(before);
    if is_within_word {
        return None;
    }
    let token = expression.find(&text[at..])?.as_str();
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    // A random part of an address before a slash looks like base64, too, so the token tells.
    let is_within_base64 = token.chars().all(is_base64) && ends_with_base64(before);
    (!is_within_base64).then_some(token)
}

/// Adds the spans of a text that match, until this thread has taken so much processor time, or there are more than `most`.
/// The rest of the text is a span then.
fn collect_until(
    end: Duration,
    most: usize,
    expression: &Expression,
    text: &str,
    rule: usize,
    spans: &mut Vec<Span>,
) {
    if processor_time() > end {
        spans.push(Span { start: 0, end: text.len(), rule });
        return;
    }
    for found in expression.captures_iter(text) {
        if spans.len() >= most || processor_time() > end {
            spans.push(Span { start: found.get_match().start(), end: text.len(), rule });
            return;
        }
        spans.extend(found.meant().map(|meant| Span { start: meant.start(), end: meant.end(), rule }));
    }
}

/// A code for other characters: a color of a terminal, also without its escape character, an escape of a language, JSON,
/// rsyslog or `cat`, a percent code of an address, also of one inside another one, or a code of an e-mail (RFC 2045). Its
/// last letter is not part of a word.
const CODE: &str = concat!(
    "(?:",
    color!(),
    r"|\[[0-9;]{1,12}m|\\(?:[abefnrtv]|[0-3]?[0-7]{1,2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|x[0-9A-Fa-f]{2})|#0[0-3][0-7]|\^[A-Z]|%(?:(?:25)*[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})|=(?:0[9AD]|2[027]|3D|A0))"
);

/// A sign of base64 as JSON or an address may write it, also one inside another one.
const BASE64_CODE: &str = r"(?:\\+/|(?:\\+u00|%(?:25)*)(?:2[BbFf]|3[Dd]))";

/// The maximum number of bytes of a [`CODE`] that is looked for.
const LONGEST_CODE: usize = 32;

/// Returns whether a text ends with such a code.
fn ends_with_code(text: &str) -> bool {
    static END: LazyLock<Expression> = LazyLock::new(|| Expression::builtin(&format!("{CODE}$")));
    END.is_match(&text[text.ceil_char_boundary(text.len().saturating_sub(LONGEST_CODE))..])
}

/// The number of characters before a token that tell whether it is inside base64.
const BASE64: usize = 64;

/// Returns whether a text ends with base64, rather than with a path or an address.
fn ends_with_base64(text: &str) -> bool {
    if !text.ends_with(['+', '/']) {
        return false;
    }
    let end = &text[text.ceil_char_boundary(text.len().saturating_sub(BASE64))..];
    let is_other = |c: char| !c.is_ascii_alphanumeric() && c != '+' && c != '/';
    let base64 = end.rsplit(is_other).next().unwrap_or(end);
    is_very_random(base64)
}

/// Returns the processor time that this thread has taken, which does not grow while others work.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Returns the patterns of a built-in rule.
fn patterns(name: &str) -> Vec<Pattern> {
    match name {
        SECRETS => secrets::patterns(),
        "emails" => vec![Pattern::matches(
            &["@"],
            r"\b([A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,8}[A-Za-z]{2,24})\b",
            always,
        )],
        "ips" => [
            // IP addresses of version 4, also before a port.
            r"(?:^|[^0-9A-Za-z.:]|\\[nrt])((?:[0-9]{1,3}\.){3}[0-9]{1,3})(?:$|[^0-9A-Za-z.]|\.(?:$|[^0-9A-Za-z]))",
            // Those of version 6, also with one of version 4 as their end (RFC 4291, section 2.2).
            r"(?:^|[^0-9A-Za-z.:]|\\[nrt])((?:[0-9A-Fa-f]{0,4}:){2,7}(?:(?:[0-9]{1,3}\.){3}[0-9]{1,3}|[0-9A-Fa-f]{0,4}))(?:$|[^0-9A-Za-z.:]|[.:](?:$|[^0-9A-Za-z]))",
        ]
        .map(|regex| Pattern::matches(&[], regex, is_address))
        .into(),
        "home-paths" => vec![Pattern::matches(
            &["/home/", "/users/", r":\users\", r":\\users\\"],
            // A folder named `home` may also be inside a project.
            r#"(?:^|[^A-Za-z0-9_.-]|\\[nrt]|\s-[A-Za-z]|/(?:data|export|media|mnt|srv|usr|var))(/home/[^/\s"'<>:;,()]+)|(/Users/[^/\s"'<>:;,()]+|[A-Za-z]:\\{1,2}Users\\{1,2}[^\\\s"'<>:;,()]+)"#,
            always,
        )],
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
