//! The expressions of projects' own rules. The library searches in linear time, but keeps memory for each thread that has
//! ever searched. So the memory of an expression's searches is bounded, and kept here, once. Whoever searches at the same
//! time has memory of their own for that long.

use std::ops::{ControlFlow, Range};
use std::sync::{Mutex, PoisonError};

use regex_automata::meta::{BuildError, Cache, Config, Regex};
use regex_automata::util::iter::Searcher;
use regex_automata::{Input, Span};

/// The maximum number of bytes that an expression may take when compiled, and each kind of automaton that is made of it.
const SIZE: usize = 64 << 10;

/// The maximum number of groups. A search takes memory for each group in each state.
const MOST_GROUPS: usize = 3;

/// A compiled expression, with the memory that its searches use.
#[derive(Debug)]
pub(super) struct Expression {
    regex: Regex,
    kept: Mutex<Option<Cache>>,
}

impl Expression {
    /// Compiles an expression, which may take some ten milliseconds. Fails with the reason if it is invalid or too large.
    pub(super) fn new(expression: &str) -> Result<Self, String> {
        // Backtracking would need memory of its own.
        let limits = Config::new()
            .nfa_size_limit(Some(SIZE))
            .onepass_size_limit(Some(SIZE))
            .hybrid_cache_capacity(SIZE)
            .backtrack(false);
        let reason = |error: BuildError| match (error.size_limit(), error.syntax_error()) {
            (Some(limit), _) => format!("it takes more than {limit} bytes when compiled"),
            (None, Some(error)) => error.to_string(),
            (None, None) => error.to_string(),
        };
        let regex = Regex::builder().configure(limits).build(expression).map_err(reason)?;
        if regex.captures_len() > 1 + MOST_GROUPS {
            return Err(format!("it has more than {MOST_GROUPS} groups"));
        }
        Ok(Self { regex, kept: Mutex::default() })
    }

    /// Returns the number of bytes that the expression takes, with what is kept for searches.
    pub(super) fn memory(&self) -> usize {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.regex.memory_usage() + kept.as_ref().map_or(0, Cache::memory_usage)
    }

    /// Calls `found` with each match until it breaks: with the whole match, and with what the expression is about, unless that
    /// is empty: the first of its groups that are part of the match, or all of it.
    pub(super) fn each_match(
        &self,
        text: &str,
        mut found: impl FnMut(Range<usize>, Option<Range<usize>>) -> ControlFlow<()>,
    ) {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut cache = kept().take().unwrap_or_else(|| self.regex.create_cache());
        let mut captures = self.regex.create_captures();
        let mut searcher = Searcher::new(Input::new(text));
        while let Some(whole) = searcher.advance(|input| {
            self.regex.search_captures_with(&mut cache, input, &mut captures);
            Ok(captures.get_match())
        }) {
            let group = (1..captures.group_len()).find_map(|group| captures.get_group(group));
            let meant = group.unwrap_or_else(|| whole.span());
            let meant = Some(meant).filter(|meant| !meant.is_empty()).map(|meant: Span| meant.range());
            if found(whole.range(), meant).is_break() {
                break;
            }
        }
        *kept() = Some(cache);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_take_bounded_memory() {
        // Each of these is nearly as large as an expression may be.
        for expression in
            [r"(?:a|b){1,450}[ab]+", r"()()()(?:a|b){1,250}[ab]+", r"()()()(?:[a-f]{1,20}-?){1,20}x"]
        {
            let expression = Expression::new(expression).expect("an expression");
            let unused = expression.memory();
            for text in ["ab".repeat(5_000), "abcdef-".repeat(5_000)] {
                expression.each_match(&text, |_, _| ControlFlow::Continue(()));
            }
            let taken = expression.memory() - unused;
            assert!((1..1 << 20).contains(&taken), "{taken} bytes");
        }
    }

    #[test]
    fn groups_are_few_because_each_takes_memory_in_each_state() {
        let refused = Expression::new(&format!("{}a+", "()".repeat(490))).expect_err("too many groups");
        assert_eq!(refused, "it has more than 3 groups");
        Expression::new("(a)|(b)|(c)").expect("three groups");
    }
}
