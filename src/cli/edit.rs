//! Changes of a JSON text that leave every byte alone that they are not about, and that can be undone byte for byte.
//!
//! What is put into a list comes right after the entry before it, or right after the bracket of a list that was there and was
//! empty; a list that is made for it keeps its entries on lines of their own. So the text itself says how it was before: an only
//! entry that touches the bracket leaves an empty list behind, and any other takes the list along.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use anyhow::{Context as _, Result, bail, ensure};
use jsonc_parser::ast::{Object, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

/// What became of a thing in the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It was not there.
    Added,
    /// Another one of ours was there.
    Replaced,
    /// It was there.
    Kept,
    /// It was there and is no longer.
    Removed,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Added => "added",
            Self::Replaced => "replaced",
            Self::Kept => "was already there",
            Self::Removed => "removed",
        })
    }
}

/// Reads the JSON object that settings are; none if they are empty. What an agent's own parser would refuse, but for comments
/// and commas at the end, is refused; so is a member that stands there twice, since parsers differ in which of them they take.
pub(super) fn read(text: &str) -> Result<Option<Object<'_>>> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options).context("it is not JSON")?;
    let Some(Value::Object(root)) = parsed.value else {
        bail!("it is not a JSON object");
    };
    expect_once(&root)?;
    Ok(Some(root))
}

/// Returns the object that the member `name` of settings is, if it is there.
pub(super) fn member<'a, 'b>(root: &'b Object<'a>, name: &str) -> Result<Option<&'b Object<'a>>> {
    let Some(member) = root.get(name) else { return Ok(None) };
    let object = member.value.as_object().with_context(|| format!("its member {name} is not an object"))?;
    expect_once(object)?;
    Ok(Some(object))
}

/// Refuses an object that has a member twice.
fn expect_once(object: &Object<'_>) -> Result<()> {
    let mut names = HashSet::new();
    for property in &object.properties {
        ensure!(names.insert(property.name.as_str()), "its member {} occurs twice", property.name.as_str());
    }
    Ok(())
}

/// Returns the place of a member in an object.
pub(super) fn place_of(object: &Object<'_>, name: &str) -> usize {
    object.properties.iter().position(|property| property.name.as_str() == name).unwrap_or_default()
}

/// Returns by how much settings are indented.
pub(super) fn unit<'a>(text: &'a str, root: Option<&Object<'_>>) -> &'a str {
    let first = root.and_then(|root| Some((root, root.properties.first()?)));
    let space = first.map_or("", |(root, first)| &text[root.start() + 1..first.start()]);
    match space.rsplit_once('\n') {
        Some((_, unit)) if !unit.is_empty() && unit.trim().is_empty() => unit,
        _ => "  ",
    }
}

/// A piece of the text and what takes its place.
#[derive(Debug)]
pub(super) struct Edit {
    range: Range<usize>,
    text: String,
}

impl Edit {
    /// Puts `text` in the place of `range`.
    pub(super) fn replace(range: Range<usize>, text: String) -> Self {
        Self { range, text }
    }

    /// Makes the change.
    pub(super) fn apply(&self, text: &mut String) {
        text.replace_range(self.range.clone(), &self.text);
    }
}

/// An array or an object in a text: where it is, and where its entries are.
#[derive(Debug)]
pub(super) struct List<'a> {
    text: &'a str,
    range: Range<usize>,
    entries: Vec<Range<usize>>,
}

/// What is left where an entry is taken out of a list.
#[derive(Debug)]
pub(super) enum Removal {
    /// The list, without the entry.
    Entry(Edit),
    /// Nothing: the list was there for the entry alone.
    List,
}

impl<'a> List<'a> {
    /// The list at `range` of `text` with these entries.
    pub(super) fn new(text: &'a str, list: &impl Ranged, entries: &[impl Ranged]) -> Self {
        let entries = entries.iter().map(|entry| entry.start()..entry.end()).collect();
        Self { text, range: list.start()..list.end(), entries }
    }

    /// Puts an entry at the end. `write` writes it, given what a line of it has to begin with.
    pub(super) fn append(&self, write: impl FnOnce(&str) -> String) -> Edit {
        let Some(last) = self.entries.last() else {
            let at = self.range.start + 1;
            return Edit::replace(at..at, write(self.indentation_at(self.range.start)));
        };
        let own_line = self.text[self.range.start..last.start].contains('\n');
        let indentation = self.indentation_at(last.start);
        let entry = write(indentation);
        let gap = if own_line { format!(",\n{indentation}") } else { ", ".to_owned() };
        Edit::replace(last.end..last.end, gap + &entry)
    }

    /// Takes out the entry of this place in the list.
    pub(super) fn remove(&self, place: usize) -> Removal {
        let entry = self.entries[place].clone();
        let range =
            match (place.checked_sub(1).map(|before| &self.entries[before]), self.entries.get(place + 1)) {
                (Some(before), _) if self.text[before.end..entry.start].trim() == "," => {
                    before.end..entry.end
                }
                (_, Some(next)) if self.text[entry.end..next.start].trim() == "," => entry.start..next.start,
                (None, None) if entry.start > self.range.start + 1 => return Removal::List,
                // With a comment beside it, or a comma that nothing follows.
                _ => {
                    let rest = &self.text[entry.end..self.range.end];
                    let comma = rest.trim_start().starts_with(',').then(|| rest.find(',')).flatten();
                    entry.start..comma.map_or(entry.end, |comma| entry.end + comma + 1)
                }
            };
        Removal::Entry(Edit::replace(range, String::new()))
    }

    /// The blank space with which the line begins in which the entry of this place stands.
    pub(super) fn indentation_of(&self, place: usize) -> &'a str {
        self.indentation_at(self.entries[place].start)
    }

    /// The blank space with which the line begins in which `at` stands.
    fn indentation_at(&self, at: usize) -> &'a str {
        let line = self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let rest = &self.text[line..at];
        &rest[..rest.len() - rest.trim_start().len()]
    }
}
