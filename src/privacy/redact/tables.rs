//! Secrets in tables, below the name of their column: as the clients of databases print them, in files with separators, and in
//! statements of SQL that insert rows.

use std::iter;
use std::ops::Range;
use std::sync::LazyLock;

use super::expression::Expression;
use super::named::{MORE, OTHER_NAME, WORDS, keys};
use super::other_forms::is_of_other_form;
use super::pattern::Pattern;
use super::random::{is_key, is_random};
use super::value_ends::beginning;

/// The signs between the cells of a row. The first of them that is in the head of a table is that of the table.
const SIGNS: [char; 6] = ['│', '┃', '|', '\t', ',', ';'];

/// Those of files.
const IN_FILES: [char; 3] = ['\t', ',', ';'];

/// The maximum numbers of bytes of the head of a table and of a column's name.
const LONGEST_HEAD: usize = 4_000;
const LONGEST_NAME: usize = 64;
/// The maximum number of columns of secrets whose cells are one below the other.
const MOST_COLUMNS: usize = 16;
/// The maximum number of bytes of a secret.
const LONGEST_SECRET: usize = 1_000;
/// What is before a command behind a table.
const PROMPTS: [&str; 3] = ["$ ", "# ", "> "];

/// Returns the patterns of these secrets. Each name of a secret has one of `anchors`.
pub(super) fn patterns(anchors: &[&'static str]) -> [Pattern; 2] {
    [
        Pattern::values(anchors, printed).on_two_lines(),
        Pattern::values(&["insert ", "replace ", "copy "], inserted).on_two_lines(),
    ]
}

/// Returns the secrets in tables that are printed.
fn printed(text: &str) -> Vec<Range<usize>> {
    static NAME: LazyLock<Expression> =
        LazyLock::new(|| Expression::builtin(&format!("(?i-u){WORDS}|pass|pw|{}", keys())));
    let (mut secrets, mut read) = (Vec::new(), 0);
    for name in NAME.find_iter(text) {
        if name.start() < read {
            continue;
        }
        let start = text[read..name.start()].rfind('\n').map_or(read, |end| read + end + 1);
        let end = line(text, name.end());
        read = end;
        if let Some(table) = (end - start <= LONGEST_HEAD).then(|| Table::of(text, start..end)).flatten() {
            read = table.read(text, end, &mut secrets);
        }
    }
    secrets
}

/// Returns where the line ends in which a position is, with the sign of its end.
fn line(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |end| at + end + 1)
}

/// The columns of a table that have secrets.
enum Table {
    /// Those of rows with so many cells, which are between signs.
    Signs { sign: char, cells: usize, columns: Vec<usize> },
    /// Those of rows whose cells are one below the other, in these parts of a line.
    Places { places: Vec<Range<usize>>, is_ruled: bool },
    /// The only column.
    One,
}

impl Table {
    /// Returns the table whose head a line is, if it has such columns.
    fn of(text: &str, head: Range<usize>) -> Option<Self> {
        let line = &text[head.clone()];
        // Most lines are none of a table, and the names of secrets are looked for last, because that takes longest.
        if let Some(sign) = SIGNS.into_iter().find(|sign| line.contains(*sign)) {
            let cells = split(line, sign);
            let is_head = cells.iter().all(|cell| may_be_name(&line[cell.clone()]))
                && (!IN_FILES.contains(&sign) || is_head_of_file(line, &cells));
            let columns: Vec<_> =
                (0..cells.len()).filter(|at| is_head && is_secret(&line[cells[*at].clone()])).collect();
            let has_secrets = !columns.is_empty();
            return has_secrets.then_some(Self::Signs { sign, cells: cells.len(), columns });
        }
        let below = &text[head.end..self::line(text, head.end)];
        let is_ruled = is_ruler(below);
        if is_ruled && !below.trim().contains(' ') {
            return is_secret(line).then_some(Self::One);
        }
        let names = apart(line, "  ");
        let are_names = names.iter().all(|name| may_be_name(&line[name.clone()]));
        let is_head = is_ruled || names.len() > 1 && !line.bytes().any(|byte| byte.is_ascii_lowercase());
        let mut places = if is_ruled {
            apart(beginning(below, line.len()), " ")
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
            let end = line(text, at);
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

    /// Returns the cells of a row that may be secrets, unless the row is not one of the table.
    fn cells(&self, row: &str) -> Option<Vec<Range<usize>>> {
        let content = row.trim();
        if content.is_empty() || content == r"\." || PROMPTS.iter().any(|prompt| content.starts_with(prompt))
        {
            return None;
        }
        match self {
            Self::Signs { sign, cells, columns } => {
                let all = split(row, *sign);
                (all.len() == *cells).then(|| columns.iter().map(|column| all[*column].clone()).collect())
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

/// Returns the cells of a row. A sign between quotation marks separates none.
fn split(row: &str, sign: char) -> Vec<Range<usize>> {
    let (mut cells, mut start, mut is_blank, mut is_quoted) = (Vec::new(), 0, true, false);
    for (at, c) in row.char_indices() {
        if c == sign && !is_quoted {
            cells.push(start..at);
            (start, is_blank) = (at + c.len_utf8(), true);
            continue;
        }
        if c == '"' {
            is_quoted = !is_quoted && is_blank;
        }
        is_blank &= c.is_whitespace();
    }
    cells.push(start..row.len());
    cells
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

/// Returns whether a line is drawn between rows.
fn is_ruler(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty()
        && line.chars().all(|c| " +-=|:".contains(c) || ('─'..='╿').contains(&c))
        && line.contains(['-', '=', '─', '━', '═'])
}

/// Returns where the content of a part of a line is, without what is around it.
fn content(line: &str, part: Range<usize>) -> Range<usize> {
    let around = |c: char| c.is_whitespace() || "\"'`[]()".contains(c);
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

/// Returns whether a cell of a head may be a name.
fn may_be_name(cell: &str) -> bool {
    let cell = cell.trim();
    cell.len() <= LONGEST_NAME
        && cell.chars().all(|c| c.is_ascii_alphanumeric() || "_. #\"'`[]()-".contains(c))
}

/// Returns whether a line with these cells is the head of a file with separators, rather than a part of a list in a program, which
/// has blanks around its names or ends with a sign.
fn is_head_of_file(line: &str, cells: &[Range<usize>]) -> bool {
    let is_name = |cell: &Range<usize>| {
        let cell = line[cell.clone()].trim_end_matches(['\r', '\n']);
        !cell.is_empty() && !cell.starts_with([' ', '\'']) && !cell.ends_with(' ')
    };
    cells.iter().all(is_name)
}

/// Returns where the content of a cell of a secret's column is, if it looks random, or like nothing but a key.
fn secret(row: &str, cell: Range<usize>, is_strict: bool) -> Option<Range<usize>> {
    let content = content(row, cell);
    let value = &row[content.clone()];
    let is_one = value.len() <= LONGEST_SECRET && !value.contains(char::is_whitespace);
    let looks_random = is_key(value) || !is_strict && is_random(value);
    (is_one && looks_random && !is_of_other_form(value)).then_some(content)
}

/// Returns the secrets in statements that name the columns of the rows that they insert.
fn inserted(text: &str) -> Vec<Range<usize>> {
    static STATEMENT: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(
            r#"(?i-u)\b(?:(?:insert|replace)\s+(?:ignore\s+)?into|copy)\s+[a-z0-9_."`\[\]]+\s*\(((?u:[^()])+)\)\s*(?:values\s*|(?<copied>from\s+stdin(?u:[^\n])*\n))"#,
        )
    });
    let (mut secrets, mut at) = (Vec::new(), 0);
    while let Some(statement) = STATEMENT.captures_at(text, at) {
        at = statement.get_match().end();
        let names = statement.get(1).map_or("", |names| names.as_str());
        let columns: Vec<_> = split(names, ',').into_iter().map(|name| is_secret(&names[name])).collect();
        if !columns.contains(&true) {
            continue;
        }
        at = if statement.name("copied").is_some() {
            let places = (0..columns.len()).filter(|column| columns[*column]).collect();
            Table::Signs { sign: '\t', cells: columns.len(), columns: places }.read(text, at, &mut secrets)
        } else {
            tuples(text, at, &columns, &mut secrets)
        };
    }
    secrets
}

/// Adds the secrets of the tuples that begin at a position. `columns` says which of their members may be some. Returns where the
/// tuples end.
fn tuples(text: &str, mut at: usize, columns: &[bool], secrets: &mut Vec<Range<usize>>) -> usize {
    let bytes = text.as_bytes();
    let (mut depth, mut column, mut quoted) = (0_usize, 0, None);
    while let Some(&byte) = bytes.get(at) {
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
            (b')', None) if depth == 1 => (depth, column) = (0, 0),
            (b')', None) => depth = depth.saturating_sub(1),
            (b',', None) if depth == 1 => column += 1,
            // Another statement, or something else than the tuples of this one.
            (_, None) if depth == 0 && byte != b',' && !byte.is_ascii_whitespace() => break,
            _ => (),
        }
        at += 1;
    }
    text.ceil_char_boundary(at)
}
