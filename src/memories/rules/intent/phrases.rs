//! Hand-written rules for queries that state their intent outright.
//!
//! The five phrases of the original design are among them ("I need to add …", "How do I …?", "Why does … happen?",
//! "Fix …", "Show me examples of …"). Requests for examples are found by rules only, because they are too rare in public
//! data sets to fit a model to.

use std::sync::LazyLock;

use regex::Regex;

use super::IntentType;
use super::IntentType::{Debugging, ExampleSeeking, Explanation, Implementation, Learning};

/// Words before a request that say nothing about its intent.
static OPENING: LazyLock<Regex> = LazyLock::new(|| {
    let words = "please|hi|hey|hello|ok|okay|so|and|but|now|then|also|next|first|finally|again|thanks|great|can you|\
        could you|would you|will you|can we|could we|help me|i want you to|i need you to|let's|you should|just|quickly";
    Regex::new(&format!(r"^\W*(?:(?:{words})\b\W*)*")).expect("the pattern is valid")
});

/// Examples, and other things from which people learn by example.
const EXAMPLES: &str =
    r"(?:examples?|samples?|sample (?:code|projects?|apps?)|snippets?|tutorials?|demos?|walkthroughs?)";
/// Texts to read.
const READING: &str = r"(?:docs|documentation|references?|books?|articles?|blog posts?|(?:learning|useful|reading) (?:material|resources|links))";
/// Signs of a failure.
const FAILURE: &str = r"(?:errors?|exceptions?|fail\w*|crash\w*|broken?|breaks|wrong\w*|incorrect\w*|hangs?|hanging|freez\w+|stuck|panic\w*|segfaults?|timeouts?|timing out|times out|nan|null|undefined|missing|[45]\d\d)";
/// What is done to make something that did not exist.
const MAKE: &str = r"(?:implement|add|build|create|write|integrate|develop|introduce|generate|set up|refactor|extend|support|design|make)";

/// The rules, in the order in which they are tried. A rule without an intent leaves the query to the model.
static RULES: LazyLock<Vec<(Option<IntentType>, Regex)>> = LazyLock::new(|| {
    [
        (
            Some(ExampleSeeking),
            format!(r"^(?:show|give) (?:me|us) (?:\w+ ){{0,3}}(?:{EXAMPLES}|code|usages?|templates?)\b|^(?:(?:an?|any|some|more|good|working) )*{EXAMPLES}\b|\b(?:code|working|usage) examples?\b|\b{EXAMPLES} (?:of|for|on|about|that|showing|or)\b"),
        ),
        (
            Some(ExampleSeeking),
            format!(r"\b(?:show|give|find|provide|share|suggest|recommend|post|see|need|want|know|looking for|is there|are there|point)\b[^.!?]{{0,40}}\b{EXAMPLES}\b|\b(?:give|provide|share|suggest|recommend|know|looking for|find|point|any good|where)\b[^.!?]{{0,40}}\b{READING}\b"),
        ),
        (
            Some(Debugging),
            r"^(?:(?:i|we)\b.{0,20}\bto )?(?:fix|debug|troubleshoot|diagnose|repair|solve)\b|^(?:find|find out) (?:the|a|this|that|what) (?:bug|problem|cause|issue|is wrong)\b".to_owned(),
        ),
        (
            Some(Debugging),
            r"^how (?:do|can|could|should|would|to)(?: i| we| you)? (?:\w+ )?(?:fix|debug|solve|resolve|repair|troubleshoot|get rid of|work around)\b".to_owned(),
        ),
        (
            Some(Debugging),
            r"(?:\bnot|n't|\bnever|\bno longer|\bstopped|\bstops) (?:\w+ )?work(?:s|ing)?\b|\bwhat\b.{0,20}\b(?:wrong|incorrectly)\b|^what(?:'s| is) (?:causing|the (?:error|problem|issue|cause))\b".to_owned(),
        ),
        (Some(Debugging), format!(r"^(?:why|how come)\b.*\b{FAILURE}\b")),
        (
            Some(Implementation),
            format!(r"^(?:i|we)(?:'d|'ll|'re|'m| would| will| are| am)? ?(?:need|want|have|like|going|plan|planning|about|supposed)? ?to (?:also )?{MAKE}\b"),
        ),
        (
            Some(Implementation),
            r"^how (?:do|can|could|should|would|to)(?: i| we| you)? (?:best )?(?:implement|integrate|build|add|create|write|develop)\b".to_owned(),
        ),
        (
            Some(Implementation),
            format!(r"^(?:{MAKE}|rename|replace|remove|delete|move|migrate|port|convert|extract|split|wire up|hook up|update|change|use|put|turn|expose)\b"),
        ),
        (
            Some(Explanation),
            r"\bexplain\b|^(?:clarify|describe|walk me through|understand|tell me (?:why|how|more|what))\b|\b(?:difference|differences) between\b|\bi (?:don't|can't|cannot|do not) understand (?:why|how|what)\b".to_owned(),
        ),
        (
            Some(Explanation),
            r"^what (?:do|does|did)\b.*\b(?:mean|do|for)\b|^what(?:'s| is| are| was) the (?:differences?|reasons?|purpose|point|meaning|idea|rationale|motivation|benefits?|advantages?)\b|^how (?:does|do|is|are|did) (?:the|this|that|these|those|it|an?|our|its|your)\b".to_owned(),
        ),
        // "Why does this not …?" asks for a reason or for help.
        (None, r"^(?:why|how come)\b.*(?:n't|\bnot|\bnever|\bno)\b".to_owned()),
        (Some(Explanation), r"^(?:why|how come)\b".to_owned()),
        (
            Some(Learning),
            r"^(?:teach me|learn|introduction to|getting started|get started|where (?:do|can|should) i (?:start|begin|learn))\b|\b(?:want|like|need|trying|new) to learn\b|\blearn (?:how|about|more)\b|^how (?:do|can|could|should|would|does) (?:i|we|you|one|people|someone)\b".to_owned(),
        ),
        (None, r"^what(?:'s| is| are|s) (?:the|a) (?:\w+ )?(?:best|right|proper|correct|good|way|ways|idiomatic|recommended)\b".to_owned()),
        (Some(Learning), r"^what(?:'s| is| are|s)\b".to_owned()),
    ]
    .into_iter()
    .map(|(intent, rule)| (intent, Regex::new(&rule).expect("the rule is valid")))
    .collect()
});

/// The number of bytes of a sentence that are read. Each rule reads them again.
const LONGEST_SENTENCE: usize = 1_000;

/// Returns the intent that a query states outright in its first or its last sentence. `prose` is the query as
/// [`prose`](super::prose) returns it.
#[must_use]
pub fn stated(prose: &str) -> Option<IntentType> {
    let prose = prose.replace("for example", "").replace("for instance", "");
    let mut sentences =
        prose.split_inclusive(['\n', '.', '!', '?']).map(str::trim).filter(|sentence| sentence.len() > 2);
    let first = sentences.next()?;
    let last = sentences.next_back();
    [Some(first), last].into_iter().flatten().find_map(of_sentence)
}

fn of_sentence(sentence: &str) -> Option<IntentType> {
    let sentence = &sentence[..sentence.floor_char_boundary(LONGEST_SENTENCE)];
    let request = OPENING.replace(sentence, "");
    RULES.iter().find(|(_, rule)| rule.is_match(&request)).and_then(|(intent, _)| *intent)
}

#[cfg(test)]
mod tests {
    use super::super::prose;
    use super::*;

    #[test]
    fn what_is_stated_outright_needs_no_model() {
        for (query, expected) in [
            ("I need to add a retry to the uploader", Some(Implementation)),
            ("We'd like to integrate Stripe", Some(Implementation)),
            ("Please rename the column", Some(Implementation)),
            ("How do I implement pagination?", Some(Implementation)),
            ("How do I sort a list?", Some(Learning)),
            ("What are goroutines?", Some(Learning)),
            ("I want to learn about lifetimes", Some(Learning)),
            ("What's the best way to handle JWT tokens?", None),
            ("Why does the cache expire so early?", Some(Explanation)),
            ("What does the ampersand mean here?", Some(Explanation)),
            ("How does the scheduler pick a task?", Some(Explanation)),
            ("Can you explain the retry policy?", Some(Explanation)),
            ("Why is the upload failing?", Some(Debugging)),
            ("Why doesn't it compile?", None),
            ("Fix the login.", Some(Debugging)),
            ("How can I fix this?", Some(Debugging)),
            ("The middleware isn't working", Some(Debugging)),
            ("It ran for an hour yesterday. What am I doing wrong?", Some(Debugging)),
            ("Show me examples of macros", Some(ExampleSeeking)),
            ("Show me how the index is built, for example", None),
            ("Is there a tutorial on tokio?", Some(ExampleSeeking)),
            ("Does anyone know a good book about parsers?", Some(ExampleSeeking)),
            ("The report, for example the last one, is green", None),
            ("", None),
        ] {
            assert_eq!(stated(&prose(query)), expected, "{query}");
        }
    }
}
