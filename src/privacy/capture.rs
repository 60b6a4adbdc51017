//! How much is kept of what is posted.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How much is kept of the events posted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Capture {
    /// Everything.
    #[default]
    Full,
    /// Figures, verdicts, names, keyed hashes and times, but no text.
    Metadata,
    /// Nothing.
    Off,
}
