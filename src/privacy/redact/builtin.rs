//! The built-in rules, compiled, and how a text is searched for what they replace.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use super::pattern::{Pattern, always};
use super::replacements::HOME_PATHS;
use super::{MOST_SPANS, Span, colors, ips, secrets, tables};

/// The name of the built-in rule of passwords, keys and tokens.
pub(super) const SECRETS: &str = "secrets";

/// The names of the built-in rules.
pub const BUILTIN: [&str; 4] = [SECRETS, "emails", "ips", HOME_PATHS];

/// The number of that rule in [`BUILTIN`].
const SECRETS_NUMBER: usize = 0;

/// What is found in a text.
#[derive(Default)]
pub(super) struct Found {
    /// The spans, in any order.
    pub(super) spans: Vec<Span>,
    /// Whether the text has colors.
    pub(super) has_colors: bool,
    /// Whether something else may be on two lines of the text.
    pub(super) spans_lines: bool,
}

impl Found {
    /// Adds what a pattern finds from a position on, or makes the whole text one span if that is very much. Returns up to where the
    /// text need not be searched again.
    fn collect(&mut self, pattern: &Pattern, text: &str, at: usize) -> usize {
        let end = pattern.collect(text, at, &mut self.spans);
        if self.spans.len() > MOST_SPANS {
            self.spans = vec![Span { start: 0, end: text.len(), rule: pattern.rule }];
        }
        end
    }
}

/// All built-in rules, compiled.
struct Rules {
    /// The patterns that are tried at the occurrences of their anchors.
    anchored: Vec<Pattern>,
    anchors: AhoCorasick,
    /// The number in `anchored` of the pattern to which each anchor belongs. The next number is that of colors.
    owners: Vec<usize>,
    /// The patterns that are tried on every text.
    others: Vec<Pattern>,
}

/// The rules are compiled once for all projects, because that takes some milliseconds, and their searches take megabytes.
static RULES: LazyLock<Rules> = LazyLock::new(Rules::compile);

impl Rules {
    fn compile() -> Self {
        let all = (0..BUILTIN.len()).flat_map(patterns);
        let (others, anchored): (Vec<_>, Vec<_>) = all.partition(|pattern| pattern.anchors.is_empty());
        let numbered = || anchored.iter().enumerate();
        let mut anchors: Vec<_> = numbered().flat_map(|(_, pattern)| &pattern.anchors).copied().collect();
        let mut owners: Vec<_> =
            numbered().flat_map(|(number, pattern)| pattern.anchors.iter().map(move |_| number)).collect();
        anchors.extend(colors::ANCHORS);
        owners.extend(colors::ANCHORS.map(|_| anchored.len()));
        // The largest kind of automaton reads each byte once, and needs no other memory.
        let anchors = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(anchors)
            .expect("the anchors are few enough");
        Self { anchored, anchors, owners, others }
    }

    /// Returns where the anchors of a text are, and the numbers of their patterns, in the order of their ends.
    fn hits(&self, text: &str) -> impl Iterator<Item = (usize, usize)> {
        let hits = self.anchors.find_overlapping_iter(text);
        hits.map(|hit| (hit.start(), self.owners[hit.pattern().as_usize()]))
    }
}

/// The built-in rules that a project has chosen, by their numbers in [`BUILTIN`].
#[derive(Clone, Copy)]
pub(super) struct Chosen([bool; BUILTIN.len()]);

impl Chosen {
    /// Chooses the rules with these names.
    pub(super) fn of(names: &[&str]) -> Self {
        Self(BUILTIN.map(|name| names.contains(&name)))
    }

    /// Returns the names of the rules.
    pub(super) fn names(self) -> impl Iterator<Item = &'static str> {
        BUILTIN.into_iter().zip(self.0).filter(|(_, is_chosen)| *is_chosen).map(|(name, _)| name)
    }

    fn has(self, pattern: &Pattern) -> bool {
        self.0[pattern.rule]
    }

    /// Returns whether a text may have something, after one pass over it.
    pub(super) fn may_match(self, text: &str) -> bool {
        let is_chosen = |pattern: Option<&Pattern>| pattern.is_none_or(|pattern| self.has(pattern));
        RULES.others.iter().any(|other| self.has(other))
            || RULES.hits(text).any(|(_, owner)| is_chosen(RULES.anchored.get(owner)))
    }

    /// Returns the secrets in the tables of a text.
    pub(super) fn search_tables(self, text: &str) -> Vec<Span> {
        if !self.0[SECRETS_NUMBER] {
            return Vec::new();
        }
        let found = tables::printed(text).into_iter().chain(tables::inserted(text));
        found.map(|found| Span { start: found.start, end: found.end, rule: SECRETS_NUMBER }).collect()
    }

    /// Returns what is found in a text. If there is very much, the whole of it is one span.
    pub(super) fn search(self, text: &str) -> Found {
        let mut found = Found::default();
        // How far each pattern has searched.
        let mut looked: Vec<(usize, usize)> = Vec::new();
        for (start, owner) in RULES.hits(text) {
            let Some(pattern) = RULES.anchored.get(owner) else {
                found.has_colors = true;
                continue;
            };
            if !self.has(pattern) {
                continue;
            }
            found.spans_lines |= pattern.spans_lines;
            let known = looked.iter().position(|(of, _)| *of == owner);
            // A token that extends to the end may contain its own beginning any number of times.
            if known.is_some_and(|known| start < looked[known].1) {
                continue;
            }
            let end = found.collect(pattern, text, start);
            match known {
                Some(known) => looked[known].1 = end,
                None => looked.push((owner, end)),
            }
        }
        for other in RULES.others.iter().filter(|other| self.has(other)) {
            found.collect(other, text, 0);
        }
        found
    }
}

/// Returns the patterns of the built-in rule with this number.
fn patterns(rule: usize) -> impl Iterator<Item = Pattern> {
    let patterns = match BUILTIN[rule] {
        SECRETS => secrets::patterns(),
        "emails" => vec![Pattern::matches(&["@"], &mailboxes(), is_mailbox)],
        "ips" => ips::patterns().into(),
        HOME_PATHS => vec![Pattern::matches(
            &["/home/", "/users/", r"\/home\/", r"\/users\/", r":\users\", r":\\users\\", r":\\\\users\\\\"],
            &home_paths(),
            always,
        )],
        _ => unreachable!("each rule has patterns"),
    };
    patterns.into_iter().map(move |pattern| pattern.of_rule(rule))
}

/// Returns the expression of e-mail addresses. The letter of an escape before one does not belong to it, and is none before the
/// decorator of a function.
fn mailboxes() -> String {
    const NAME: &str = "[A-Za-z0-9._%+-]";
    const HOST: &str = r"@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,8}[A-Za-z]{2,24}";
    format!(r"(?:(?:^|[^\\])\b|\\[nrt])({NAME}{{1,64}}{HOST})\b|\\({NAME}{{2,64}}{HOST})\b")
}

/// Returns the expression of the parts of paths that name a user.
fn home_paths() -> String {
    // A folder with such a name may also be inside a project, and what is behind `Users` in an address the number of one.
    const ROOT: &str = r"(?:^|[^A-Za-z0-9_.@~-]|\\[nrt]|(?:^|\s)-[A-Za-z]|/(?:[A-Za-z]|data|export|media|mnt|nfs|rootfs|srv|usr|var))";
    const FIRST: &str = r#"[^\\/\s"'<>:;,()*$%{}|.]"#;
    const REST: &str = r#"[^/\s"'<>:;,()]*"#;
    const ESCAPED_REST: &str = r#"[^\\/\s"'<>:;,()]*"#;
    format!(
        r"{ROOT}(/(?:home/{FIRST}|Users/[\pL_]){REST})|(\\/(?:home\\/{FIRST}|Users\\/[\pL_]){ESCAPED_REST}|(?-u:\b)[A-Za-z]:[\\/]{{1,4}}(?i-u:users)[\\/]{{1,4}}{FIRST}{ESCAPED_REST})"
    )
}

/// Returns whether what looks like the address of a mailbox is none of an image at several scales, a unit of systemd, a product of
/// two matrices in Python, or a member of JSON with an annotation of OData.
fn is_mailbox(text: &str) -> bool {
    const NO_DOMAINS: [&str; 19] = [
        "avif",
        "contiguous",
        "gif",
        "heic",
        "jpeg",
        "jpg",
        "pdf",
        "permute",
        "png",
        "reshape",
        "scope",
        "service",
        "slice",
        "socket",
        "svg",
        "transpose",
        "unsqueeze",
        "view",
        "webp",
    ];
    const DOMAINS: [&str; 4] = ["com", "inc", "net", "org"];
    const ANNOTATIONS: [&str; 5] =
        ["Message.ExtendedInfo", "Microsoft.Dynamics.", "OData.", "Org.OData.", "Redfish."];
    let host = text.rsplit('@').next().unwrap_or_default();
    let domain = host.to_ascii_lowercase();
    let (first, last) = domain.rsplit_once('.').unwrap_or_default();
    let is_member =
        ["odata", "self"].contains(&first) || ANNOTATIONS.iter().any(|namespace| host.starts_with(namespace));
    !NO_DOMAINS.contains(&last) && (!is_member || DOMAINS.contains(&last))
}
