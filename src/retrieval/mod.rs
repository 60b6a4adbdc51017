//! Retrieval: how a text finds the documents whose texts are like it, in bounded work however many documents there are.
//!
//! This module knows no domain. A domain that wants its records found describes their table as a [`Corpus`] and keeps
//! [`keys::of_document`] in an integer array under a GIN index, which is then an inverted index. A search takes four steps:
//!
//! 1. [`samples`] estimates the document frequency of each key from some documents of the scope.
//! 2. [`key_plan`] picks those keys of the query that about a thousand documents have.
//! 3. [`candidates`] reads these documents with one index scan, or two where the first finds little.
//! 4. The domain ranks its candidates in the program, not in SQL: by their texts alone with [`rank`], or by more of their
//!    [`features`] as rows of a [`matrix`].
//!
//! No exact search by trigrams is bounded so: the common trigrams of a million texts have hundreds of thousands of postings. The
//! other way that was measured, a B-tree table of terms and `pg_trgm` to rank, is as fast: among a million queries of agents a
//! search takes 2 to 6 ms either way at the median. But it takes four times the disk and three times as long to fill, and another
//! wording of the same query is among the first five in .71 of the cases instead of .75; within one root, in .91 instead of .93.

pub mod candidates;
pub mod features;
pub mod key_plan;
pub mod keys;
pub mod matrix;
pub mod rank;
pub mod samples;
pub mod text;

use std::sync::Arc;

pub use candidates::{Candidate, Candidates};
pub use samples::Samples;

/// A table whose rows are documents. All members but the table's name are SQL, written by the domain and never by a client;
/// expressions name columns of the table plainly. The table has the columns `project` and `id`.
#[derive(Debug)]
pub struct Corpus {
    /// The table.
    pub table: &'static str,
    /// The column of the text that a document is found by.
    pub text: &'static str,
    /// The column of its [`keys`].
    pub keys: &'static str,
    /// What the keys are made of.
    pub keyed: Keyed,
    /// The condition that a document is in the facet `$2`, where a project's documents are divided into facets.
    pub in_facet: &'static str,
    /// Whether facets are few and large, so that each has a sample of its own. Of many small ones the project's sample must do.
    pub facets_are_sampled: bool,
    /// The condition that a row is a document at all, which is also the condition of the GIN index.
    pub indexed: &'static str,
    /// An order of rows that an index has within a project and within a facet of it: newest first, where the age of a document
    /// matters.
    pub order: &'static str,
    /// Whether candidates are filled up with the first rows in that order where they are few: for a ranking that learns from
    /// documents unlike the query too.
    pub filled_up: bool,
    /// What is read of a candidate.
    pub columns: &'static str,
    /// What a candidate must meet besides. Its own parameters begin at `$5`.
    pub filter: &'static str,
}

/// What the keys of documents and queries are made of.
#[derive(Debug, Clone, Copy)]
pub enum Keyed {
    /// Words, in the project and in the facet, their pairs and prefixes, as [`keys::of_document`] makes them.
    Words,
    /// The terms that the domain makes of a text, as [`keys::of_term`] makes them. Facets have no keys of their own.
    Terms(fn(&str) -> Vec<String>),
}

impl Keyed {
    /// Returns the words or terms of a text, in lower case.
    fn words(self, text: &str) -> Vec<String> {
        match self {
            Self::Words => text::words(&text.to_lowercase()).map(str::to_owned).collect(),
            Self::Terms(terms) => terms(text),
        }
    }
}

/// What is searched: the documents of a project, or those of one facet of it, such as a domain of its logs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The project.
    pub project: Arc<str>,
    /// The facet, if not all of the project is searched.
    pub facet: Option<String>,
}

impl Scope {
    /// Returns the scope of all documents of the project.
    #[must_use]
    pub fn of_project(&self) -> Self {
        Self { project: Arc::clone(&self.project), facet: None }
    }
}

/// The condition that a row is in the scope whose project is `$1` and whose facet, or null, is `$2`.
fn in_scope(corpus: &Corpus) -> String {
    format!("project = $1 and ($2::text is null or {})", corpus.in_facet)
}
