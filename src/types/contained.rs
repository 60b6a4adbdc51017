//! A text that records are searched for.

use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A text that the texts of records are searched for. The database compares each of its characters with each of theirs in the
/// worst case, so that [`Checks`](crate::http::Checks) refuse a long one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Contained(String);

impl Contained {
    /// The maximum number of characters.
    pub const MOST: usize = 200;

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the pattern of SQL's `like` that texts match which contain this one.
    #[must_use]
    pub fn pattern(&self) -> String {
        let escaped = self.0.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
        format!("%{escaped}%")
    }
}

impl PartialSchema for Contained {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::String).max_length(Some(Self::MOST)).into()
    }
}

impl ToSchema for Contained {}
