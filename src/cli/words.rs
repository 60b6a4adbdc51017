//! What commands say to people: on standard output, on standard error, and when they fail.

use std::fmt::Display;
use std::io::{self, Write as _};

use crate::error::{Error, FieldError};

/// The reader of standard output has gone, as `head` does once it has its lines.
#[derive(Debug, thiserror::Error)]
#[error("standard output was closed")]
pub(super) struct NobodyReads;

/// Writes to standard output. Fails with [`NobodyReads`] if its reader has gone.
pub(super) fn write_out(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => NobodyReads.into(),
        _ => anyhow::Error::new(error).context("writing to standard output"),
    })
}

/// Writes a line to standard output.
pub(super) fn print(line: impl Display) -> anyhow::Result<()> {
    write_out(format!("{}\n", visible(&line.to_string())).as_bytes())
}

/// Writes a line to standard error. Nothing happens if nobody reads it.
pub(super) fn note(line: impl Display) {
    let _ = writeln!(io::stderr(), "{}", visible(&line.to_string()));
}

/// Escapes the characters by which a text from a server could change what a terminal does or shows.
fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if turns || c.is_control() && c != '\n' && c != '\t' {
            visible.extend(c.escape_unicode());
        } else {
            visible.push(c);
        }
    }
    visible
}

/// Describes an error with its causes, each said once, without numbers and names that only programmers know.
pub(super) fn describe(error: &anyhow::Error) -> String {
    let mut said: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = match cause.downcast_ref::<Error>() {
            Some(Error::Invalid(errors)) => fields(errors),
            _ => cause.to_string(),
        };
        let text = without_number(&text).replace("error returned from database: ", "");
        if !said.iter().any(|before| before.contains(&text)) {
            said.push(text);
        }
    }
    said.join(": ")
}

/// Names the options that are wrong, which the server names by JSON Pointers.
pub(super) fn fields(errors: &[FieldError]) -> String {
    let name = |pointer: &str| format!("--{}", pointer.trim_start_matches('/').replace('_', "-"));
    let say = |error: &FieldError| format!("{} {}", name(&error.pointer), error.detail);
    errors.iter().map(say).collect::<Vec<_>>().join("; ")
}

/// Returns an error of the system without its number: `No such file or directory (os error 2)` says it all
/// before the bracket.
pub(super) fn without_number(text: &str) -> String {
    let mut words = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(" (os error ") {
        words.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    words.push_str(rest);
    words.strip_prefix("io: ").map_or(words.clone(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_text_does_not_control_the_terminal() {
        assert_eq!(visible("a\u{1b}[31mb\r\n\tc\u{202e}é"), "a\\u{1b}[31mb\\u{d}\n\tc\\u{202e}é");
    }

    #[test]
    fn an_error_says_each_cause_once_and_no_numbers() {
        let missing = io::Error::from_raw_os_error(2);
        let twice = sqlx::Error::Io(missing);
        let error = Err::<(), _>(twice).context("reading the list").expect_err("an error");
        assert_eq!(
            describe(&error),
            "reading the list: error communicating with database: No such file or directory"
        );
        let error = anyhow::Error::from(Error::invalid("/as_of", "must not be in the future"));
        assert_eq!(describe(&error), "--as-of must not be in the future");
    }
}
