//! Redaction: private spans of a text are replaced before anything is written or logged.
//!
//! A rule is a name and regular expressions. Those of built-in rules have *anchors*, texts without which they cannot
//! match: one pass over a text finds the anchors in it, and most texts have none.

mod addresses;
mod azure;
mod builtin;
mod camel_case;
mod colors;
mod commands;
mod cookies;
mod expression;
mod headers;
mod ips;
mod lines;
mod lists;
mod manifests;
mod marks;
mod members;
mod named;
mod near_names;
mod other_forms;
mod pairs;
mod pattern;
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

use std::ops::Range;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use self::builtin::{Chosen, Found, SECRETS};
use self::expression::Expression;
use self::plain::Plain;
use super::hash_key::HashKey;

pub use builtin::BUILTIN;
pub use replacements::behind_home;
pub use rules::RedactRules;
pub use shapes::issuers;
pub use texts::{GroupName, Redaction, Texts};

/// The name that all rules of projects have in metrics.
pub const CUSTOM: &str = "custom";

/// The processor time that custom expressions may take with a text, and with each byte of it. Most need a tenth of it.
const CUSTOM_TIME: (Duration, Duration) = (Duration::from_micros(50), Duration::from_nanos(200));

/// The processor time that custom expressions may take beyond that, until the rules of the project are read again. They
/// need some at first, when the automata are built.
const CUSTOM_SPARE: Duration = Duration::from_millis(250);

/// The maximum number of spans of an event that are replaced one by one, because each takes memory.
const MOST_SPANS: usize = 100_000;

/// Replaces the private spans of texts by a project's rules.
pub struct Redactor {
    builtin: Chosen,
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
        f.debug_list().entries(self.builtin.names()).entries(&self.custom_names).finish()
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

    /// Returns whether this is the whole of a text.
    fn is_whole(self, text: &str) -> bool {
        self.start == 0 && self.end == text.len()
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
        let builtin = Chosen::of(builtin);
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
        self.has_custom() || self.builtin.may_match(text)
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
            let rule = BUILTIN.len() + number;
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
        for plain in spans_lines.then(|| lines::views(text)).into_iter().flatten() {
            let found = self.builtin.search(&plain.text).spans;
            spans.extend(found.into_iter().map(|span| span.in_whole(&plain)));
        }
        if let Some(strings) = lines::strings(text).filter(|_| spans_lines) {
            let found = self.builtin.search_tables(&strings.text);
            spans.extend(found.into_iter().map(|span| span.in_whole(&strings)));
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
            collect_until(end, most, expression, text, BUILTIN.len() + number, spans);
        }
        let beyond = processor_time().saturating_sub(begun).saturating_sub(own);
        let mut spare = spare();
        *spare = spare.saturating_sub(beyond);
    }

    fn name(&self, rule: usize) -> &str {
        BUILTIN.get(rule).copied().unwrap_or_else(|| &self.custom_names[rule - BUILTIN.len()])
    }
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

/// Returns the processor time that this thread has taken, which does not grow while others work.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests;
