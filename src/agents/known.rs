//! The known kinds of lines of an agent's transcripts, so that new kinds are reported instead of being silently
//! skipped.

use std::fmt;

/// The kinds of lines and the versions of an agent that the program was written for.
#[derive(Debug)]
pub struct Known {
    /// The newest version of the agent whose transcripts were tried.
    pub version: (u32, u32, u32),
    /// The known kinds of lines, in alphabetical order.
    pub kinds: &'static [&'static str],
}

/// The kind of a line in a transcript.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LineKind {
    /// The line's type, as the agent names it. It is none if the line has no type.
    pub kind: Option<String>,
    /// The version of the agent that wrote the line, if the line names it.
    pub version: Option<String>,
}

/// Something in a transcript that the program was not written for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unknown {
    /// A kind of line.
    Kind(String),
    /// A version of the agent.
    Version(String),
}

impl Known {
    /// Returns what is not known of a line.
    #[must_use]
    pub fn unknown_in(&self, line: LineKind) -> Vec<Unknown> {
        let kind = line.kind.filter(|kind| self.kinds.binary_search(&kind.as_str()).is_err());
        let version =
            line.version.filter(|version| number(version).is_none_or(|version| version > self.version));
        kind.map(Unknown::Kind).into_iter().chain(version.map(Unknown::Version)).collect()
    }
}

/// Returns a version's three numbers, without what follows them.
fn number(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.split(['.', '-', '+']).map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next()??))
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text was written by the agent, so characters that a terminal might interpret are escaped.
        let shown = |text: &str| text.chars().take(60).collect::<String>().escape_debug().to_string();
        match self {
            Self::Kind(kind) => write!(f, "lines of type \"{}\"", shown(kind)),
            Self::Version(version) => write!(f, "version {}", shown(version)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::ALL;

    #[test]
    fn kinds_are_in_the_order_of_the_alphabet() {
        for agent in ALL {
            assert!(agent.known.kinds.is_sorted(), "{}", agent.name);
        }
    }

    #[test]
    fn a_newer_version_and_a_new_kind_are_unknown() {
        let known = Known { version: (2, 1, 330), kinds: &["assistant", "user"] };
        let unknown = |kind: &str, version: &str| {
            let line = LineKind { kind: Some(kind.to_owned()), version: Some(version.to_owned()) };
            known.unknown_in(line).iter().map(Unknown::to_string).collect::<Vec<_>>()
        };
        assert_eq!(unknown("user", "2.1.330"), [""; 0]);
        assert_eq!(unknown("user", "2.0.999"), [""; 0]);
        assert_eq!(
            unknown("of-\u{1b}morrow", "2.2.0"),
            ["lines of type \"of-\\u{1b}morrow\"", "version 2.2.0"]
        );
        assert_eq!(unknown("user", "2.1.331-beta"), ["version 2.1.331-beta"]);
        assert_eq!(unknown("user", "next"), ["version next"]);
        assert_eq!(known.unknown_in(LineKind::default()), []);
    }
}
