//! A name that a client may leave out.

use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A name that a client may leave out, such as that of a session or of a model. An empty name is read as one that was left
/// out, because clients send it where they know none (so do the defaults of seed 000's records).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct OptionalName(Option<String>);

impl OptionalName {
    /// Returns whether there is no name, for use with `skip_serializing_if`.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

impl Deref for OptionalName {
    type Target = Option<String>;

    fn deref(&self) -> &Option<String> {
        &self.0
    }
}

impl From<Option<String>> for OptionalName {
    fn from(name: Option<String>) -> Self {
        Self(name.filter(|name| !name.is_empty()))
    }
}

impl From<OptionalName> for Option<String> {
    fn from(name: OptionalName) -> Self {
        name.0
    }
}

impl<'de> Deserialize<'de> for OptionalName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self::from)
    }
}

impl PartialSchema for OptionalName {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
            .max_length(Some(200))
            .description(Some("A name that may be left out. An empty one is the same as null."))
            .into()
    }
}

impl ToSchema for OptionalName {}
