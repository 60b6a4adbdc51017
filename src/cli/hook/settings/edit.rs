//! Changes of a JSON text that leave every byte alone that they are not about, and that can be undone byte for byte.
//!
//! What is put into a list comes right after the entry before it, or right after the bracket of a list that was there and was
//! empty; a list that is made for it keeps its entries on lines of their own. So the text itself says how it was before: an only
//! entry that touches the bracket leaves an empty list behind, and any other takes the list along.

use std::ops::Range;

use jsonc_parser::common::Ranged;

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
