//! A JSON object whose members belong to the client.

use std::sync::LazyLock;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef};
use sqlx::types::Json;
use sqlx::{Decode, Encode, Postgres, Type};
use utoipa::openapi::schema::{ObjectBuilder, Type as SchemaType};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A JSON object whose members belong to the client. Only that it is an object is checked; its text is kept
/// unparsed.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct FreeForm(Box<RawValue>);

impl FreeForm {
    /// Returns the object as JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl FreeForm {
    /// Makes one of a value that is written as an object.
    pub fn of(value: &impl Serialize) -> serde_json::Result<Self> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// Returns the object as a value of a `jsonb` column; an object that was not given becomes `{}`.
    #[must_use]
    pub fn or_empty(object: Option<&Self>) -> Json<&Self> {
        static EMPTY: LazyLock<FreeForm> = LazyLock::new(FreeForm::default);
        Json(object.unwrap_or(&EMPTY))
    }
}

impl Default for FreeForm {
    fn default() -> Self {
        Self(RawValue::from_string("{}".to_owned()).expect("an empty object is JSON"))
    }
}

impl<'de> Deserialize<'de> for FreeForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if raw.get().starts_with('{') {
            return Ok(Self(raw));
        }
        Err(de::Error::custom("expected an object"))
    }
}

impl PartialSchema for FreeForm {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Object)
            .additional_properties(Some(utoipa::openapi::schema::AdditionalProperties::FreeForm(true)))
            .description(Some("A free-form object. Its values are preserved, but numbers may be written differently, and if several members have the same name, only the last one is stored."))
            .into()
    }
}

impl ToSchema for FreeForm {}

impl Type<Postgres> for FreeForm {
    fn type_info() -> PgTypeInfo {
        Json::<Box<RawValue>>::type_info()
    }

    fn compatible(other: &PgTypeInfo) -> bool {
        Json::<Box<RawValue>>::compatible(other)
    }
}

impl PgHasArrayType for FreeForm {
    fn array_type_info() -> PgTypeInfo {
        Json::<Box<RawValue>>::array_type_info()
    }
}

impl Encode<'_, Postgres> for FreeForm {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        Encode::<Postgres>::encode_by_ref(&Json(&self.0), buffer)
    }
}

impl<'r> Decode<'r, Postgres> for FreeForm {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(Self(Json::<Box<RawValue>>::decode(value)?.0))
    }
}
