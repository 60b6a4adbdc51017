//! The levels at which posted events can be kept.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How much of the posted events is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Capture {
    /// Everything is kept.
    #[default]
    Full,
    /// Numbers, verdicts, names, keyed hashes and times are kept, but no text.
    Metadata,
    /// Nothing is kept.
    Off,
}
