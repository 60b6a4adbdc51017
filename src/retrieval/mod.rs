//! Retrieval: how similar documents are found for a text, with bounded work however many documents there are.
//!
//! This module knows no domain. A domain describes its table as a [`Corpus`] and stores [`keys::of_document`] in an
//! integer array with a GIN index, which serves as an inverted index. A search has four steps:
//!
//! 1. [`samples`] estimates the document frequency of each key from a sample of the scope's documents, whose size is
//!    bounded, too.
//!
//! 2. [`key_plan`] chooses those keys of the query that about a thousand documents have.
//!
//! 3. [`candidates`] reads these documents with one index scan, or with two if the first finds few.
//!
//! 4. The domain ranks the candidates in the program, not in SQL: by their texts alone with [`rank`], or by further
//!    [`features`] as rows of a [`matrix`].
//!
//! A search by trigrams cannot be bounded in this way, because the common trigrams of a million texts have hundreds
//! of thousands of postings. A B-tree table of terms with `pg_trgm` for ranking was also measured. It is as fast:
//! among a million queries of agents, a search takes 2 to 6 ms at the median with either. But it needs four times the
//! disk space and three times as long to fill, and it finds a differently worded query among the first five in 0.71
//! of the cases instead of 0.75, or in 0.91 instead of 0.93 within one root.

pub mod candidates;
pub mod features;
pub mod key_plan;
pub mod keys;
pub mod matrix;
pub mod rank;
mod sample;
pub mod samples;
pub mod text;

use std::sync::Arc;

pub use candidates::{Candidate, Candidates};
pub use samples::{Samples, Search};

/// A table whose rows are documents. All members except the table's name are SQL, written by the domain and never by
/// a client. Expressions name columns of the table without qualification. The table has the columns `project` and
/// `id`.
#[derive(Debug)]
pub struct Corpus {
    /// The table.
    pub table: &'static str,
    /// The column of the text by which a document is found.
    pub text: &'static str,
    /// The column of the document's [`keys`].
    pub keys: &'static str,
    /// What the keys are made from.
    pub keyed: Keyed,
    /// The condition that a document is in the facet `$2`, if a project's documents are divided into facets.
    pub in_facet: &'static str,
    /// Whether facets are few and large, so that each has its own sample. If there are many small ones, the project's
    /// sample is used.
    pub facets_are_sampled: bool,
    /// The condition that a row is a document, which is also the condition of the GIN index.
    pub indexed: &'static str,
    /// The order of rows in an index within a project and within a facet: newest first, if the age of a document
    /// matters.
    pub order: &'static str,
    /// Whether the first rows in that order are added if there are few candidates, for a ranking that also learns
    /// from documents unlike the query.
    pub filled_up: bool,
    /// The columns that are read of a candidate.
    pub columns: &'static str,
    /// A further condition on candidates. Its parameters begin at `$5`.
    pub filter: &'static str,
}

/// What the keys of documents and queries are made from.
#[derive(Debug, Clone, Copy)]
pub enum Keyed {
    /// Words, in the project and in the facet, their pairs and prefixes, as [`keys::of_document`] makes them.
    Words,
    /// The terms that the domain makes from a text, with keys by [`keys::of_term`]. Facets have no keys of their own.
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

/// The documents that are searched: those of a project, or of one facet of it, such as one domain of its logs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The project.
    pub project: Arc<str>,
    /// The facet. Without one, the whole project is searched.
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
