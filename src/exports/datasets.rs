//! The one list of data sets. To add a data set, write its file in the folder of its domain and add a line here. Its
//! routes, file names, documentation and command follow from that.

use clap::{ArgMatches, Args, Command};
use serde::de::DeserializeOwned;
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterIn};

use super::format::Format;
use super::{Dataset, Described, Description};
use crate::error::Result;
use crate::generations::exports::{CorrectionPairs, TrainingPairs};
use crate::http::params::from_pairs;
use crate::memories::exports::MemorySuggestions;
use crate::messages::exports::Conversations;
use crate::searches::exports::SearchPairs;
use crate::suggestions::exports::{AcceptedSuggestions, PreferencePairs, Rankings, SuggestionHistory};

/// Every data set, in the order in which they are listed.
pub static ALL: [Entry; 9] = [
    Entry::of::<TrainingPairs>(),
    Entry::of::<CorrectionPairs>(),
    Entry::of::<PreferencePairs>(),
    Entry::of::<AcceptedSuggestions>(),
    Entry::of::<Rankings>(),
    Entry::of::<SuggestionHistory>(),
    Entry::of::<SearchPairs>(),
    Entry::of::<Conversations>(),
    Entry::of::<MemorySuggestions>(),
];

/// A data set with its parameters, whichever it is.
pub type AnyDataset = Box<dyn Dataset>;

/// A data set of the list: its description, and how its own parameters are documented and read.
#[derive(Debug)]
pub struct Entry {
    /// What is known about the data set before a request is read.
    pub description: Description,
    /// Makes the data set with no parameters given.
    pub default: fn() -> AnyDataset,
    /// Describes its own parameters for the OpenAPI document.
    pub parameters: fn() -> Vec<Parameter>,
    /// Reads its own parameters from the names and values of a query string.
    pub from_query: fn(&[(String, String)]) -> Result<AnyDataset>,
    /// Adds its own parameters to a command.
    pub add_arguments: fn(Command) -> Command,
    /// Reads its own parameters from a command line.
    pub from_arguments: fn(&ArgMatches) -> Result<AnyDataset, clap::Error>,
}

impl Entry {
    const fn of<D: Described + Default + DeserializeOwned + IntoParams + Args + 'static>() -> Self {
        Self {
            description: D::DESCRIPTION,
            default: || Box::<D>::default(),
            parameters: || D::into_params(|| Some(ParameterIn::Query)),
            from_query: |pairs| Ok(Box::new(from_pairs::<D>(pairs)?)),
            add_arguments: D::augment_args,
            from_arguments: |matches| Ok(Box::new(D::from_arg_matches(matches)?)),
        }
    }

    /// The formats that the data set offers; the first is the default.
    pub fn formats(&self) -> impl Iterator<Item = Format> {
        Format::of(self.description.shapes)
    }

    /// What readers should know besides the summary, in Markdown: the formats, and the notes.
    #[must_use]
    pub fn documentation(&self) -> String {
        let notes = self.description.notes;
        let names: Vec<_> = self.formats().map(|format| format!("`{}`", format.name())).collect();
        let formats = match names.as_slice() {
            [only] => format!("Format: {only}"),
            [default, rest @ ..] => format!("Formats: {default} (default), {}", rest.join(", ")),
            [] => String::new(),
        };
        format!("{formats}. {notes}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{generations, memories, messages, searches, suggestions};

    #[test]
    fn what_is_erased_in_a_domain_is_forgotten_by_each_of_its_data_sets() {
        let mut forgetting = [
            generations::exports::DATASETS.as_slice(),
            &suggestions::exports::DATASETS,
            &searches::exports::DATASETS,
            &messages::exports::DATASETS,
            &memories::exports::DATASETS,
        ]
        .concat()
        .iter()
        .map(|description| description.name)
        .collect::<Vec<_>>();
        let mut all: Vec<_> = ALL.iter().map(|entry| entry.description.name).collect();
        forgetting.sort_unstable();
        all.sort_unstable();
        assert_eq!(forgetting, all);
    }

    #[test]
    fn every_data_set_offers_a_format_for_each_of_its_shapes() {
        for entry in &ALL {
            for shape in entry.description.shapes {
                let written = entry.formats().any(|it| it.choose(entry.description.shapes) == Some(*shape));
                assert!(written, "{} {shape:?}", entry.description.name);
            }
        }
    }
}
