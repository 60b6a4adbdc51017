//! Extracts the keywords of queries: what they are about, without the words of the question itself.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex::Regex;

use super::super::terms::written_terms;

/// The maximum number of keywords of a conversation.
const MOST: usize = 20;

/// Words of questions that are not keywords, as stems.
const NO_KEYWORDS: [&str; 31] = [
    "add",
    "best",
    "build",
    "create",
    "debug",
    "explain",
    "find",
    "fix",
    "get",
    "give",
    "handl",
    "happen",
    "help",
    "implement",
    "know",
    "learn",
    "like",
    "make",
    "mean",
    "need",
    "return",
    "see",
    "show",
    "tell",
    "thing",
    "try",
    "understand",
    "use",
    "want",
    "way",
    "work",
];

/// Names that are one keyword though they consist of several words: paths, names of files, qualified names (`std::fs`,
/// `os.path`) and error codes (`ORA-00942`). Two words with a slash between them, such as "and/or", are not a path.
static NAMES: LazyLock<Regex> = LazyLock::new(|| {
    let path = r"(?:~|\.{1,2}|[\w@.-]+)?(?:/[\w@.-]*\w){2,}|(?:~|\.{1,2})?/[\w@.-]*\w|[\w@.-]+/[\w@-]+\.\w+";
    let qualified = r"[A-Za-z_]\w+(?:(?:\.|::)[A-Za-z_]\w*)+";
    let code = r"[A-Z]{1,10}(?:-[0-9]+)+";
    Regex::new(&format!("{path}|{qualified}|{code}")).expect("the pattern is valid")
});

/// Runs of the characters of which names consist.
static RUNS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[\w@./:~-]+").expect("the pattern is valid"));

/// The maximum number of bytes of a run in which names are searched. Each search may read the whole rest of it.
const LONGEST_RUN: usize = 256;

/// Returns the keywords of queries, the oldest first: each once, in the order and the spelling of their first appearance.
pub(super) fn keywords(queries: &[&str]) -> Vec<String> {
    let mut keywords = Keywords::default();
    for query in queries {
        let mut end = 0;
        for run in RUNS.find_iter(query).filter(|run| run.len() <= LONGEST_RUN) {
            for name in NAMES.find_iter(run.as_str()) {
                if run.as_str()[..name.start()].ends_with(char::is_alphanumeric) {
                    continue;
                }
                keywords.add_words(query, end..run.start() + name.start());
                keywords.add(name.as_str().to_lowercase(), name.as_str().to_owned());
                end = run.start() + name.end();
            }
        }
        keywords.add_words(query, end..query.len());
    }
    keywords.found
}

#[derive(Default)]
struct Keywords {
    known: HashSet<String>,
    found: Vec<String>,
}

impl Keywords {
    /// Adds the words in a range of a query. An identifier is one word.
    fn add_words(&mut self, query: &str, range: std::ops::Range<usize>) {
        let (first, mut at) = (query.len() - query.trim_start().len(), range.start);
        let separator = |c: char| !(c.is_alphanumeric() || c == '_');
        for run in query[range].split_inclusive(separator) {
            let is_first = at <= first;
            at += run.len();
            let terms = written_terms(run.trim_end_matches(separator));
            // The first term of an identifier is the identifier itself.
            let most = if run.is_ascii() { 1 } else { MOST };
            for (stem, written) in terms.take(most) {
                // The capital letter of the first word of a sentence has no meaning.
                let rest = written.char_indices().nth(1).map_or("", |(at, _)| &written[at..]);
                let is_plain = is_first && rest.len() > 2 && rest.chars().all(char::is_lowercase);
                self.add(stem, if is_plain { written.to_lowercase() } else { written.to_owned() });
            }
        }
    }

    fn add(&mut self, stem: String, written: String) {
        let is_wanted = !NO_KEYWORDS.contains(&stem.as_str()) && self.found.len() < MOST;
        if is_wanted && self.known.insert(stem) {
            self.found.push(written);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_programs_are_one_keyword_each() {
        for (query, expected) in [
            (
                "Why does AuthMiddleware reject the tokens, and the token?",
                vec!["AuthMiddleware", "reject", "tokens"],
            ),
            ("parse_config and parseHttpURL", vec!["parse_config", "parseHttpURL"]),
            ("Fix src/auth/middleware.rs and /etc/hosts", vec!["src/auth/middleware.rs", "/etc/hosts"]),
            ("What is in package.json and src/main.rs?", vec!["package.json", "src/main.rs"]),
            ("std::fs::read and/or os.path.join", vec!["std::fs::read", "os.path.join"]),
            ("E0382, ORA-00942 and HTTP 500", vec!["E0382", "ORA-00942", "HTTP", "500"]),
            ("Middleware fails", vec!["middleware", "fails"]),
            ("ERR_CONNECTION_REFUSED on localhost:8080", vec!["ERR_CONNECTION_REFUSED", "localhost", "8080"]),
            ("基金", vec!["基", "金"]),
        ] {
            assert_eq!(keywords(&[query]), expected, "{query}");
        }
    }

    #[test]
    fn a_text_of_nothing_but_beginnings_of_names_is_read_once() {
        // Read from each beginning to the end, these would take hours.
        for text in ["ab.c-", "A-1@", "\n", "Z ", "./"] {
            assert!(keywords(&[&text.repeat(400_000)]).len() <= MOST);
        }
        let long = format!("{}/b.rs", "a".repeat(LONGEST_RUN));
        assert_eq!(keywords(&[&long]), [&"a".repeat(LONGEST_RUN), "b", "rs"]);
    }

    #[test]
    fn a_keyword_of_an_earlier_query_is_not_repeated() {
        assert_eq!(
            keywords(&["What are Python decorators?", "Show me decorator examples"]),
            ["Python", "decorators", "examples"]
        );
    }
}
