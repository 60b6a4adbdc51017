//! Secrets in tables, below the name of their column: as the clients of databases print them, in files with separators, and in
//! statements of SQL that insert rows.

use std::iter;
use std::ops::Range;
use std::sync::LazyLock;

use super::expression::{Captures, Expression};
use super::named::{MORE, OTHER_NAME, WORDS, keys};
use super::other_forms::is_of_other_form;
use super::pattern::Pattern;
use super::random::{is_key, is_random};
use super::value_ends::beginning;

/// The signs between the cells of a row. The first of these of which one is in the head of a table are those of the table. Some
/// programs draw several lines in a table.
const SIGNS: [&[char]; 5] = [&['│', '┃', '┆', '║'], &['|'], IN_FILES[0], IN_FILES[1], IN_FILES[2]];

/// Those of files.
const IN_FILES: [&[char]; 3] = [&['\t'], &[','], &[';']];

/// What may be before the first line of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A character of what may be before a string in its line, behind the indentation: no sign between cells, and no comma but one between
/// arguments.
const BEFORE_STRING: &str = r"(?:(?u:[^,;|\t`\n])|, )";

/// The maximum numbers of bytes of the head of a table and of a column's name.
const LONGEST_HEAD: usize = 4_000;
const LONGEST_NAME: usize = 64;
/// The maximum number of columns of secrets whose cells are one below the other.
const MOST_COLUMNS: usize = 16;
/// The number of signs of a ruler that somebody has written for a table.
const LONG_RULER: usize = 20;
/// The maximum number of bytes of a secret.
const LONGEST_SECRET: usize = 1_000;
/// What is before a command behind a table.
const PROMPTS: [&str; 3] = ["$ ", "# ", "> "];

/// Returns the patterns of these secrets. Each name of a secret has one of `anchors`.
pub(super) fn patterns(anchors: &[&'static str]) -> [Pattern; 3] {
    [
        Pattern::values(anchors, printed).on_two_lines(),
        Pattern::values(&["[ record "], expanded),
        Pattern::values(&["insert ", "replace ", "copy "], inserted).on_two_lines(),
    ]
}

/// Returns the secrets in tables that are printed.
pub(super) fn printed(text: &str) -> Vec<Range<usize>> {
    static NAME: LazyLock<Expression> =
        LazyLock::new(|| Expression::builtin(&format!("(?i-u){WORDS}|pass|pw|{}", keys())));
    let (mut secrets, mut read) = (Vec::new(), 0);
    for name in NAME.find_iter(text) {
        if name.start() < read {
            continue;
        }
        let before = text[read..name.start()].rsplit(['\n', BYTE_ORDER_MARK]).next().unwrap_or_default();
        let end = line(text, name.end());
        let start = name.start() - before.len();
        let start = start + behind_opening(&text[start..end], before.len());
        read = end;
        if let Some(table) = (end - start <= LONGEST_HEAD).then(|| Table::of(text, start..end)).flatten() {
            read = table.read(text, end, &mut secrets);
        }
    }
    secrets
}

/// Returns the secrets in the expanded display of psql, in which each column of a row is a line.
fn expanded(text: &str) -> Vec<Range<usize>> {
    static RECORD: LazyLock<Expression> = LazyLock::new(|| Expression::builtin(r"(?i-u)\[ record [0-9]+ \]"));
    static COLUMN: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(r"(?im-u)^(?:\| |│ )?([a-z0-9_]+) *(?:\||│) ?((?u:[^\s|│]){12,})")
    });
    let secret = |column: Captures<'_>| {
        let value = column.get(2)?;
        let is_of_secret = column.get(1).is_some_and(|name| is_secret(name.as_str()));
        (is_of_secret && is_secret_value(value.as_str())).then(|| value.range())
    };
    if RECORD.is_match(text) { COLUMN.captures_iter(text).filter_map(secret).collect() } else { Vec::new() }
}

/// Returns where the head of a table begins in a line with the name of a secret at a position: behind the tags or the mark of a string
/// that are open there.
fn behind_opening(line: &str, name: usize) -> usize {
    static OPENING: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(&format!(
            r#"^(?-u)(?:(?:[ \t]*<[A-Za-z](?u:[^<>\n])*>)+|[ \t]*{BEFORE_STRING}*?(?:`|"""|'''|r#+"))"#
        ))
    });
    // An apostrophe is behind several letters, and a string behind one at most.
    static QUOTATION: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(&format!(
            r#"^(?-u)[ \t]*(?:{BEFORE_STRING}*(?:(?u:[^,;|\t`\nA-Za-z0-9])|, ))?[A-Za-z]?["']"#
        ))
    });
    let before = beginning(&line[..name], LONGEST_HEAD);
    let open = || {
        let quotation = QUOTATION.find(before)?;
        // The others of a line are around something else.
        let is_open = line.matches(&before[quotation.end() - 1..quotation.end()]).count() % 2 == 1;
        is_open.then_some(quotation)
    };
    OPENING.find(before).or_else(open).map_or(0, |opening| opening.end())
}

/// Returns where the line ends in which a position is, with the sign of its end.
fn line(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |end| at + end + 1)
}

/// The columns of a table that have secrets.
enum Table {
    /// Those of rows with so many cells, which are between some signs.
    Signs { signs: &'static [char], cells: usize, columns: Vec<usize> },
    /// Those of rows whose cells are one below the other, in these parts of a line.
    Places { places: Vec<Range<usize>>, is_ruled: bool },
    /// The only column.
    One,
}

impl Table {
    /// Returns the table whose head a line is, if it has such columns.
    fn of(text: &str, head: Range<usize>) -> Option<Self> {
        let line = &text[head.clone()];
        let below = &text[head.end..self::line(text, head.end)];
        let is_ruled = is_ruler(below);
        // Most lines are none of a table, and the names of secrets are looked for last, because that takes longest.
        if let Some(signs) = SIGNS.into_iter().find(|signs| line.contains(*signs)) {
            let cells: Vec<_> = split(line, signs).collect();
            let is_head = cells.iter().all(|cell| may_be_name(&line[cell.clone()], true, is_ruled))
                && (!IN_FILES.contains(&signs) || is_of_file(line, &cells))
                && !is_below_row(&text[..head.start], signs, cells.len(), is_ruled);
            let columns: Vec<_> =
                (0..cells.len()).filter(|at| is_head && is_secret(&line[cells[*at].clone()])).collect();
            let has_secrets = !columns.is_empty();
            return has_secrets.then_some(Self::Signs { signs, cells: cells.len(), columns });
        }
        let names = apart(line, "  ");
        let has_parts = below.trim().contains(' ');
        let width = |line: &str| line.trim().chars().count();
        // A short ruler below a longer line is between the outputs of two programs.
        let is_ruled = is_ruled
            && (has_parts || width(below) >= width(line) || names.len() > 1 && width(below) >= LONG_RULER);
        let is_whole = is_ruled && !has_parts;
        if is_whole && names.len() == 1 {
            return is_secret(line).then_some(Self::One);
        }
        let are_names = names.iter().all(|name| may_be_name(&line[name.clone()], is_ruled, is_ruled));
        let is_head = is_ruled || names.len() > 1 && !line.bytes().any(|byte| byte.is_ascii_lowercase());
        let mut places: Vec<_> = if is_ruled && !is_whole {
            // Each sign of a ruler is above a character, and may have several bytes.
            let is_ascii = below.is_ascii();
            let column = |at: usize| if is_ascii { at } else { below[..at].chars().count() };
            let ruled = apart(beginning(below, LONGEST_HEAD), " ").into_iter();
            ruled.map(|place| column(place.start)..column(place.end)).collect()
        } else {
            let ends = names.iter().skip(1).map(|next| next.start).chain([usize::MAX]);
            names.iter().zip(ends).map(|(name, end)| name.start..end).collect()
        };
        let secret: Vec<_> = names.into_iter().filter(|name| is_secret(&line[name.clone()])).collect();
        places.retain(|place| secret.iter().any(|name| name.start < place.end && place.start < name.end));
        (is_head && are_names && (1..=MOST_COLUMNS).contains(&places.len()))
            .then_some(Self::Places { places, is_ruled })
    }

    /// Adds the secrets of the rows that begin at a position. Returns where the table ends.
    fn read(&self, text: &str, mut at: usize, secrets: &mut Vec<Range<usize>>) -> usize {
        // Lists of things have the names of secrets in a column, too.
        let is_strict = matches!(self, Self::Places { is_ruled: false, .. });
        while at < text.len() {
            let end = self.end(text, at);
            let row = &text[at..end];
            if !is_ruler(row) {
                let Some(cells) = self.cells(row) else { break };
                let found = cells.into_iter().filter_map(|cell| secret(row, cell, is_strict));
                secrets.extend(found.map(|cell| at + cell.start..at + cell.end));
            }
            at = end;
        }
        at
    }

    /// Returns where the row ends that begins at a position. In files, a cell between quotation marks may have several lines (RFC
    /// 4180), so that the first and the last line have odd numbers of marks.
    fn end(&self, text: &str, at: usize) -> usize {
        let end = line(text, at);
        let Self::Signs { signs, cells, .. } = self else { return end };
        let is_odd = |line: &str| line.matches('"').count() % 2 == 1;
        if !IN_FILES.contains(signs) || !is_odd(&text[at..end]) {
            return end;
        }
        let mut last = end;
        let mut below = beginning(&text[end..], LONGEST_HEAD).split_inclusive('\n');
        below
            .find_map(|line| {
                last += line.len();
                is_odd(line).then_some(last)
            })
            .filter(|last| cells_of(&text[at..*last], signs, *cells).is_some())
            .unwrap_or(end)
    }

    /// Returns the cells of a row that may be secrets, unless the row is not one of the table.
    fn cells(&self, row: &str) -> Option<Vec<Range<usize>>> {
        let content = row.trim();
        if content.is_empty() || content == r"\." || is_command(row) {
            return None;
        }
        match self {
            Self::Signs { signs, cells, columns } => {
                let all = cells_of(row, signs, *cells)?;
                Some(columns.iter().map(|column| all[*column].clone()).collect())
            }
            Self::Places { places, .. } => {
                // A long value may go on below the next name.
                let cell = |place: &Range<usize>| {
                    let rest = row.get(place.start..)?;
                    let is_between = row[..place.start].ends_with(' ') || place.start == 0;
                    let blanks = rest.len() - rest.trim_start().len();
                    let start = place.start + blanks;
                    let word = rest[blanks..].find(char::is_whitespace).unwrap_or(rest.len() - blanks);
                    (is_between && start < place.end).then_some(start..start + word)
                };
                Some(places.iter().take_while(|place| place.start < row.len()).filter_map(cell).collect())
            }
            Self::One => Some(iter::once(0..row.len()).collect()),
        }
    }
}

/// Returns the cells of a row if it has so many. Others may have very many.
fn cells_of(row: &str, signs: &[char], cells: usize) -> Option<Vec<Range<usize>>> {
    let all: Vec<_> = split(row, signs).take(cells + 1).collect();
    (all.len() == cells).then_some(all)
}

/// Returns the cells of a row. A sign between quotation marks separates none. Two marks in a row are one of the cell (RFC 4180).
fn split(row: &str, signs: &[char]) -> impl Iterator<Item = Range<usize>> {
    let mut next = Some(0);
    iter::from_fn(move || {
        let start = next?;
        let (mut is_blank, mut has_marks, mut is_quoted) = (true, false, false);
        for (at, c) in row[start..].char_indices() {
            if signs.contains(&c) && !is_quoted {
                next = Some(start + at + c.len_utf8());
                return Some(start..start + at);
            }
            if c == '"' {
                has_marks |= is_blank;
                is_quoted = has_marks && !is_quoted;
            }
            is_blank &= c.is_whitespace();
        }
        next = None;
        Some(start..row.len())
    })
}

/// Returns whether a line is a command behind a table.
fn is_command(line: &str) -> bool {
    PROMPTS.iter().any(|prompt| line.trim_start().starts_with(prompt))
}

/// Returns the parts of a line between some blanks.
fn apart(line: &str, blanks: &str) -> Vec<Range<usize>> {
    let line = line.trim_end();
    let (mut parts, mut at) = (Vec::new(), 0);
    while at < line.len() {
        let start = line.len() - line[at..].trim_start_matches(' ').len();
        at = line[start..].find(blanks).map_or(line.len(), |end| start + end);
        parts.push(start..at);
    }
    parts
}

/// Returns whether a line is drawn between rows. A single sign is rather the mark of an item of a list.
fn is_ruler(line: &str) -> bool {
    let line = line.trim();
    line.len() > 1
        && line.chars().all(|c| " +-=|:".contains(c) || ('─'..='╿').contains(&c))
        && line.contains(['-', '=', '─', '━', '═'])
}

/// Returns where the content of a part of a line is, without what is around it.
fn content(line: &str, part: Range<usize>) -> Range<usize> {
    let around = |c: char| c.is_whitespace() || "\"'`*[]()".contains(c);
    let part_of = &line[part.clone()];
    let start = part.end - part_of.trim_start_matches(around).len();
    start..(part.start + part_of.trim_end_matches(around).len()).max(start)
}

/// Returns whether a cell is the name of a secret.
fn is_secret(cell: &str) -> bool {
    static NAME: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(&format!("^(?i-u)[a-z0-9_. -]*(?:(?:{WORDS})s?{MORE}|{}|pass|pw)$", keys()))
    });
    static OTHER: LazyLock<Expression> =
        LazyLock::new(|| Expression::builtin(&format!("(?i-u){OTHER_NAME}$")));
    let name = &cell[content(cell, 0..cell.len())];
    NAME.is_match(name) && !OTHER.is_match(name)
}

/// Returns whether a cell of a head may be a name. If other signs than blanks or a ruler tell that it is a cell, it may have letters of
/// any language and signs. Without a ruler below the head, one that begins with a digit is rather a value in a list, such as a number
/// or a version.
fn may_be_name(cell: &str, is_cell: bool, is_ruled: bool) -> bool {
    let name = &cell[content(cell, 0..cell.len())];
    let is_number = || name.starts_with(|c: char| c.is_ascii_digit()) && !name.contains('_');
    let is_value = || is_number() && !is_secret(name) || is_random(name);
    let cell = cell.trim();
    let is_of_name = |c: char| {
        c.is_ascii_alphanumeric()
            || "_. #\"'`*[]()-".contains(c)
            || is_cell && (!c.is_ascii() || "/?%$&:+@!".contains(c))
    };
    cell.len() <= LONGEST_NAME && cell.chars().all(is_of_name) && (is_ruled || !is_value())
}

/// Returns whether a line with these cells is of a file with separators, rather than a part of a sentence or of a list in a program,
/// which has blanks around its names or ends with a sign. The column of row numbers often has no name.
fn is_of_file(line: &str, cells: &[Range<usize>]) -> bool {
    let is_name = |(number, cell): (usize, &Range<usize>)| {
        let cell = line[cell.clone()].trim_end_matches(['\r', '\n']);
        (!cell.is_empty() || number == 0) && !cell.starts_with([' ', '\'']) && !cell.ends_with(' ')
    };
    cells.iter().enumerate().all(is_name)
}

/// Returns whether the last line of a text is a row with so many cells, as it is before a row in the middle of a list, and never
/// before a head. A ruler may be between the two, unless one below tells that the next line is a head.
fn is_below_row(before: &str, signs: &[char], cells: usize, is_ruled: bool) -> bool {
    let mut above = before.strip_suffix('\n').unwrap_or_default().rsplit('\n').take(2);
    let row = match above.next() {
        Some(ruler) if is_ruler(ruler) => above.next(),
        row => row.filter(|_| !is_ruled),
    };
    row.filter(|row| !is_command(row) && !row.starts_with("@@ ")).is_some_and(|row| {
        let all = cells_of(row, signs, cells);
        all.is_some_and(|all| !IN_FILES.contains(&signs) || is_of_file(row, &all))
    })
}

/// Returns where the content of a cell of a secret's column is, if it looks random, or like nothing but a key.
fn secret(row: &str, cell: Range<usize>, is_strict: bool) -> Option<Range<usize>> {
    // The tags around a table are closed behind its last row, or the string with what is around that.
    let text = &row[cell.clone()];
    let text = &text[..text.find("</").unwrap_or(text.len())];
    let string = text.trim_end_matches(|c: char| c.is_whitespace() || ")]};,#".contains(c));
    let text = if string.ends_with(['"', '\'', '`']) { string } else { text };
    let content = content(row, cell.start..cell.start + text.len());
    let value = &row[content.clone()];
    let is_one = value.len() <= LONGEST_SECRET && !value.contains(char::is_whitespace);
    let may_be_secret = !is_strict || is_key(value);
    (is_one && may_be_secret && is_secret_value(value)).then_some(content)
}

/// Returns whether a value of a secret's column looks random, or like nothing but a key.
fn is_secret_value(value: &str) -> bool {
    (is_key(value) || is_random(value)) && !is_of_other_form(value)
}

/// Returns the secrets in statements that name the columns of the rows that they insert.
pub(super) fn inserted(text: &str) -> Vec<Range<usize>> {
    static STATEMENT: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(
            r#"(?i-u)\b(?:(?:insert|replace)\s+(?:ignore\s+)?into|copy)\s+[a-z0-9_."`\[\]]+\s*\("#,
        )
    });
    static ROWS: LazyLock<Expression> =
        LazyLock::new(|| Expression::builtin(r"^(?i-u)(?:values|(?<copied>from\s+stdin(?u:[^\n])*\n))"));
    let (mut secrets, mut at) = (Vec::new(), 0);
    while let Some(statement) = STATEMENT.captures_at(text, at) {
        at = statement.get_match().end();
        let Some((names, end)) = names(text, at) else { continue };
        let rows = behind_blanks(text, end);
        let Some(found) = ROWS.captures_at(beginning(&text[rows..], LONGEST_HEAD), 0) else { continue };
        at = rows + found.get_match().end();
        let columns: Vec<_> = split(&names, &[',']).map(|name| is_secret(&names[name])).collect();
        if !columns.contains(&true) {
            continue;
        }
        at = if found.name("copied").is_some() {
            let places = (0..columns.len()).filter(|column| columns[*column]).collect();
            let table = Table::Signs { signs: IN_FILES[0], cells: columns.len(), columns: places };
            table.read(text, at, &mut secrets)
        } else {
            tuples(text, at, &columns, &mut secrets)
        };
    }
    secrets
}

/// Returns the names in the parentheses that are open at a position, without comments, and where they are closed.
fn names(text: &str, start: usize) -> Option<(String, usize)> {
    let (mut names, mut at) = (String::new(), start);
    while at - start < LONGEST_HEAD {
        if let Some(end) = behind_comment(text, at) {
            at = end;
            continue;
        }
        match text[at..].chars().next()? {
            ')' => return Some((names, at + 1)),
            '(' => return None,
            c => {
                names.push(c);
                at += c.len_utf8();
            }
        }
    }
    None
}

/// Returns where the comment of SQL ends that begins at a position, if there is one. Of one that is very long, this is somewhere in
/// it, where the statement ends.
fn behind_comment(text: &str, at: usize) -> Option<usize> {
    let bytes = &text.as_bytes()[at..];
    let end =
        [("--", "\n"), ("/*", "*/")].into_iter().find(|(sign, _)| bytes.starts_with(sign.as_bytes()))?.1;
    let comment = beginning(&text[at..], LONGEST_HEAD);
    Some(at + comment[2..].find(end).map_or(comment.len(), |length| 2 + length + end.len()))
}

/// Returns where something else than blanks and comments is behind a position.
fn behind_blanks(text: &str, mut at: usize) -> usize {
    loop {
        at = text.len() - text[at..].trim_start().len();
        let Some(end) = behind_comment(text, at) else { return at };
        at = end;
    }
}

/// Adds the secrets of the tuples that begin at a position. `columns` says which of their members may be some. Returns where the
/// tuples end.
fn tuples(text: &str, mut at: usize, columns: &[bool], secrets: &mut Vec<Range<usize>>) -> usize {
    let bytes = text.as_bytes();
    let (mut depth, mut column, mut quoted) = (0_usize, 0, None);
    while let Some(&byte) = bytes.get(at) {
        if let Some(end) = behind_comment(text, at).filter(|_| quoted.is_none()) {
            at = end;
            continue;
        }
        match (byte, quoted) {
            (b'\\', Some(_)) => at += 1,
            (b'\'', Some(start)) => {
                // Two marks in a row are one of the string.
                if bytes.get(at + 1) == Some(&b'\'') {
                    at += 1;
                } else {
                    quoted = None;
                    if depth == 1 && columns.get(column) == Some(&true) {
                        secrets.extend(text.get(start..at).and_then(|_| secret(text, start..at, false)));
                    }
                }
            }
            (b'\'', None) => quoted = Some(at + 1),
            (b'(', None) => depth += 1,
            // The members of an array are one of the row.
            (b'[', None) if depth > 0 => depth += 1,
            (b')', None) if depth == 1 => (depth, column) = (0, 0),
            (b')' | b']', None) => depth = depth.saturating_sub(1),
            (b',', None) if depth == 1 => column += 1,
            // Another statement, or something else than the tuples of this one.
            (_, None) if depth == 0 && byte != b',' && !byte.is_ascii_whitespace() => break,
            _ => (),
        }
        at += 1;
    }
    text.ceil_char_boundary(at)
}
