//! Help as a text for a model.

/// The maximum number of characters of a text. Agents pass a text of this length on without shortening it.
const MOST: usize = 2_000;
/// The maximum number of characters of one piece.
const MOST_OF_PIECE: usize = 700;

/// The beginning of every text.
const HEAD: &str = "From earlier work in this project, by Gleaner. It may be out of date: use it if it fits, and ignore it otherwise.\n";

/// Pieces of help under a heading.
pub(super) struct Part {
    pub(super) heading: &'static str,
    /// The pieces, each of one or more lines.
    pub(super) pieces: Vec<String>,
}

/// Writes help as a text. Returns how many pieces of each part fit into it.
pub(super) fn write(parts: &[Part]) -> (String, Vec<usize>) {
    let (mut text, mut left) = (HEAD.to_owned(), MOST - HEAD.chars().count());
    let mut taken = Vec::with_capacity(parts.len());
    for Part { heading, pieces } in parts {
        let mut count = 0;
        for piece in pieces {
            let heading = if count == 0 { format!("\n{heading}\n") } else { String::new() };
            let piece = format!("{heading}- {}\n", shorten(piece));
            let size = piece.chars().count();
            if size > left {
                break;
            }
            text.push_str(&piece);
            left -= size;
            count += 1;
        }
        taken.push(count);
    }
    (text, taken)
}

/// Returns the part of a piece that is shown.
pub(super) fn shown(piece: &str) -> &str {
    let piece = piece.trim();
    piece.char_indices().nth(MOST_OF_PIECE).map_or(piece, |(end, _)| &piece[..end])
}

/// What readers of a text may show as the end of a line, after `\r\n` has become `\n`. (Unicode, 5.8 "Newline Guidelines")
const LINE_ENDS: [char; 7] = ['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'];

/// Shortens a piece, and indents its lines after the first, so that none looks like a heading or another piece.
fn shorten(piece: &str) -> String {
    let piece = piece.trim();
    let cut = shown(piece);
    let end = if cut.len() < piece.len() { "…" } else { "" };
    format!("{}{end}", cut.replace("\r\n", "\n").replace(LINE_ENDS, "\n  "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_never_has_more_characters_than_agents_pass_on(
            pieces in proptest::collection::vec(proptest::collection::vec(".{0,900}", 0..5), 0..4),
        ) {
            let parts: Vec<_> = pieces.into_iter().map(|pieces| Part { heading: "Things:", pieces }).collect();
            let (text, taken) = write(&parts);
            prop_assert!(text.chars().count() <= MOST, "{}", text.chars().count());
            prop_assert_eq!(taken.len(), parts.len());
        }
    }

    #[test]
    fn what_fits_is_written_whole_and_in_order() {
        let parts = [
            Part {
                heading: "Memories:",
                pieces: vec!["one\ntwo".to_owned(), "x".repeat(900), "y".repeat(900), "z".repeat(900)],
            },
            Part { heading: "Files:", pieces: vec!["src/a.rs".to_owned()] },
        ];
        let (text, taken) = write(&parts);
        assert_eq!(taken, [3, 1]);
        assert!(
            text.contains("\nMemories:\n- one\n  two\n- xxx")
                && text.contains("…\n")
                && text.ends_with("\nFiles:\n- src/a.rs\n"),
            "{text}"
        );
    }

    #[test]
    fn no_line_of_a_piece_looks_like_a_heading() {
        let piece = "one\r\ntwo\rthree\u{b}four\u{c}five\u{85}six\u{2028}seven\u{2029}Files:".to_owned();
        let (text, _) = write(&[Part { heading: "Memories:", pieces: vec![piece] }]);
        let lines = "- one\n  two\n  three\n  four\n  five\n  six\n  seven\n  Files:\n";
        assert_eq!(text.split_once("Memories:\n").map(|(_, lines)| lines), Some(lines));
    }
}
