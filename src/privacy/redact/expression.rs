//! Regular expressions. The library searches in linear time, but keeps memory for each thread that has ever searched, of megabytes
//! for some expressions and texts. So what the searches of an expression keep is kept here: for as many of them as there are
//! processors, or for one of an expression of a project. Whoever searches at the same time has memory of their own for that long.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use regex_automata::meta::{BuildError, Cache, Config, Regex};
use regex_automata::util::captures;
use regex_automata::util::iter::Searcher;
use regex_automata::{Input, Span};

/// The maximum number of bytes that an expression of a project may take when compiled, and each kind of automaton that is made of
/// it.
const SIZE: usize = 64 << 10;

/// The maximum number of groups of an expression of a project. A search takes memory for each group in each state.
const MOST_GROUPS: usize = 3;

/// The maximum number of bytes that the searches of all built-in expressions keep: twice as many as ordinary texts take for each
/// processor, but not more on large machines. All of it is given back when it is more, because texts of unusual kinds take far more.
static MOST_KEPT: LazyLock<usize> = LazyLock::new(|| (*PROCESSORS * (16 << 20)).clamp(32 << 20, 128 << 20));

static PROCESSORS: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));

/// A compiled expression, with the memory that its searches use.
#[derive(Debug)]
pub(super) struct Expression {
    regex: Regex,
    kept: Arc<Kept>,
}

/// The memory that searches of an expression use again.
#[derive(Debug)]
struct Kept {
    caches: Mutex<Vec<Cache>>,
    /// For how many searches memory is kept.
    most: usize,
    /// What is kept together with that of other expressions.
    total: Option<&'static Total>,
}

/// The memory that the searches of several expressions keep together.
#[derive(Debug, Default)]
struct Total {
    bytes: AtomicUsize,
    of: Mutex<Vec<Arc<Kept>>>,
}

/// The memory that the searches of all built-in expressions keep.
static BUILTIN: LazyLock<Total> = LazyLock::new(Total::default);

impl Total {
    fn add(&self, bytes: usize) {
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > *MOST_KEPT {
            lock(&self.of).iter().for_each(|kept| kept.give_back());
        }
    }

    fn subtract(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Kept {
    fn take(&self) -> Option<Cache> {
        let cache = lock(&self.caches).pop()?;
        if let Some(total) = self.total {
            total.subtract(cache.memory_usage());
        }
        Some(cache)
    }

    fn keep(&self, cache: Cache) {
        if lock(&self.caches).len() >= self.most {
            return;
        }
        let bytes = cache.memory_usage();
        if let Some(total) = self.total {
            total.add(bytes);
        }
        let mut caches = lock(&self.caches);
        if caches.len() < self.most {
            caches.push(cache);
        } else if let Some(total) = self.total {
            total.subtract(bytes);
        }
    }

    fn give_back(&self) {
        while let Some(cache) = self.take() {
            drop(cache);
        }
    }

    fn bytes(&self) -> usize {
        lock(&self.caches).iter().map(Cache::memory_usage).sum()
    }
}

impl Expression {
    /// Compiles an expression of ours.
    pub(super) fn builtin(expression: &str) -> Self {
        Self::sharing(expression, &BUILTIN)
    }

    /// Compiles an expression of ours, whose searches keep memory together with those of others.
    fn sharing(expression: &str, total: &'static Total) -> Self {
        let regex = Regex::new(expression).expect("the built-in expressions are valid");
        let kept = Arc::new(Kept { caches: Mutex::default(), most: *PROCESSORS, total: Some(total) });
        lock(&total.of).push(Arc::clone(&kept));
        Self { regex, kept }
    }

    /// Compiles an expression of a project, which may take some ten milliseconds. Fails with the reason if it is invalid or too
    /// large.
    pub(super) fn custom(expression: &str) -> Result<Self, String> {
        // Backtracking would need memory of its own.
        let limits = Config::new()
            .nfa_size_limit(Some(SIZE))
            .onepass_size_limit(Some(SIZE))
            .hybrid_cache_capacity(SIZE)
            .backtrack(false);
        let reason = |error: BuildError| match (error.size_limit(), error.syntax_error()) {
            (Some(limit), _) => format!(
                "it takes more than {limit} bytes when compiled; [0-9] and [A-Za-z] take less than \\d and \\w, which have the digits and letters of all scripts"
            ),
            (None, Some(error)) => error.to_string(),
            (None, None) => error.to_string(),
        };
        let regex = Regex::builder().configure(limits).build(expression).map_err(reason)?;
        if regex.captures_len() > 1 + MOST_GROUPS {
            return Err(format!("it has more than {MOST_GROUPS} groups"));
        }
        let kept = Arc::new(Kept { caches: Mutex::default(), most: 1, total: None });
        Ok(Self { regex, kept })
    }

    /// Returns the number of bytes that the expression takes, with what is kept for searches.
    pub(super) fn memory(&self) -> usize {
        self.regex.memory_usage() + self.kept.bytes()
    }

    /// Searches with the memory of an earlier search, if there is some.
    fn with_cache<T>(&self, search: impl FnOnce(&mut Cache) -> T) -> T {
        let mut cache = self.kept.take().unwrap_or_else(|| self.regex.create_cache());
        let found = search(&mut cache);
        self.kept.keep(cache);
        found
    }

    /// Returns whether a text matches.
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.find(text).is_some()
    }

    /// Returns the first match in a text.
    pub(super) fn find<'t>(&self, text: &'t str) -> Option<Match<'t>> {
        let found = self.with_cache(|cache| self.regex.search_with(cache, &Input::new(text)))?;
        Some(Match { text, span: found.span() })
    }

    /// Returns the matches in a text, apart from each other.
    pub(super) fn find_iter<'s, 't>(
        &'s self,
        text: &'t str,
    ) -> impl Iterator<Item = Match<'t>> + use<'s, 't> {
        let mut searcher = Searcher::new(Input::new(text));
        std::iter::from_fn(move || {
            let next = |input: &Input<'_>| Ok(self.with_cache(|cache| self.regex.search_with(cache, input)));
            searcher.advance(next).map(|found| Match { text, span: found.span() })
        })
    }

    /// Returns the first match in a text from a position on, with its groups.
    pub(super) fn captures_at<'t>(&self, text: &'t str, at: usize) -> Option<Captures<'t>> {
        let mut captures = self.regex.create_captures();
        let input = Input::new(text).range(at..);
        self.with_cache(|cache| self.regex.search_captures_with(cache, &input, &mut captures));
        captures.is_match().then_some(Captures { text, captures })
    }

    /// Returns the matches in a text, apart from each other, with their groups.
    pub(super) fn captures_iter<'s, 't>(
        &'s self,
        text: &'t str,
    ) -> impl Iterator<Item = Captures<'t>> + use<'s, 't> {
        let mut captures = self.regex.create_captures();
        let mut searcher = Searcher::new(Input::new(text));
        std::iter::from_fn(move || {
            searcher.advance(|input| {
                self.with_cache(|cache| self.regex.search_captures_with(cache, input, &mut captures));
                Ok(captures.get_match())
            })?;
            Some(Captures { text, captures: captures.clone() })
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A part of a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Match<'t> {
    text: &'t str,
    span: Span,
}

impl<'t> Match<'t> {
    pub(super) fn start(&self) -> usize {
        self.span.start
    }

    pub(super) fn end(&self) -> usize {
        self.span.end
    }

    pub(super) fn range(&self) -> Range<usize> {
        self.span.range()
    }

    pub(super) fn as_str(&self) -> &'t str {
        &self.text[self.range()]
    }
}

/// A match with its groups.
#[derive(Debug, Clone)]
pub(super) struct Captures<'t> {
    text: &'t str,
    captures: captures::Captures,
}

impl<'t> Captures<'t> {
    /// Returns the whole match.
    pub(super) fn get_match(&self) -> Match<'t> {
        self.get(0).expect("there is a match")
    }

    /// Returns a group, if it is part of the match. The first is the whole match.
    pub(super) fn get(&self, group: usize) -> Option<Match<'t>> {
        self.captures.get_group(group).map(|span| Match { text: self.text, span })
    }

    /// Returns the group with a name, if it is part of the match.
    pub(super) fn name(&self, name: &str) -> Option<Match<'t>> {
        self.captures.get_group_by_name(name).map(|span| Match { text: self.text, span })
    }

    /// Returns the groups that are part of the match, without the whole match.
    pub(super) fn groups(&self) -> impl Iterator<Item = Match<'t>> {
        (1..self.captures.group_len()).filter_map(|group| self.get(group))
    }

    /// Returns what the expression is about, unless that is empty: the first of its groups that are part of the match, or all
    /// of it.
    pub(super) fn meant(&self) -> Option<Match<'t>> {
        let meant = self.groups().next().unwrap_or_else(|| self.get_match());
        (!meant.span.is_empty()).then_some(meant)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn searches_take_bounded_memory() {
        // Each of these is nearly as large as an expression may be.
        for expression in
            [r"(?:a|b){1,450}[ab]+", r"()()()(?:a|b){1,250}[ab]+", r"()()()(?:[a-f]{1,20}-?){1,20}x"]
        {
            let expression = Expression::custom(expression).expect("an expression");
            let unused = expression.memory();
            for text in ["ab".repeat(5_000), "abcdef-".repeat(5_000)] {
                expression.captures_iter(&text).for_each(drop);
            }
            let taken = expression.memory() - unused;
            assert!((1..1 << 20).contains(&taken), "{taken} bytes");
        }
    }

    #[test]
    fn threads_that_search_at_the_same_time_leave_memory_for_a_few() {
        const THREADS: usize = 32;
        let expression = Expression::builtin("(?:a|b){1,450}[ab]+");
        let all = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    expression.with_cache(|cache| {
                        all.wait();
                        expression.regex.search_with(cache, &Input::new("abab"))
                    })
                });
            }
        });
        assert_eq!(lock(&expression.kept.caches).len(), expression.kept.most);
    }

    #[test]
    fn all_built_in_expressions_together_keep_bounded_memory() {
        let total: &'static Total = Box::leak(Box::default());
        let text: String =
            (0_u64..50_000).map(|n| if (n * n / 7).count_ones() % 2 == 0 { 'a' } else { 'b' }).collect();
        let mut expressions = Vec::new();
        let mut most = 0;
        for _ in 0..40 {
            let expression = Expression::sharing("[ab]*a[ab]{13}c", total);
            expression.is_match(&text);
            most += expression.kept.bytes();
            expressions.push(expression);
            let kept: usize = expressions.iter().map(|expression| expression.kept.bytes()).sum();
            assert_eq!(kept, total.bytes.load(Ordering::Relaxed));
            assert!((1..=*MOST_KEPT).contains(&kept), "{kept} bytes");
        }
        assert!(most > *MOST_KEPT, "{most} bytes are too few");
    }

    #[test]
    fn groups_are_few_because_each_takes_memory_in_each_state() {
        let refused = Expression::custom(&format!("{}a+", "()".repeat(490))).expect_err("too many groups");
        assert_eq!(refused, "it has more than 3 groups");
        Expression::custom("(a)|(b)|(c)").expect("three groups");
    }
}
