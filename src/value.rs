//! Values that every domain shares: times, free-form objects, and the hash that tells a replay from a conflict.

use std::{fmt, io};

use chrono::{DateTime, Datelike, SecondsFormat, TimeDelta, Utc};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::ser::Formatter;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef};
use sqlx::types::Json;
use sqlx::{Decode, Encode, Postgres, Type};
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, OneOfBuilder, SchemaFormat, Type as SchemaType};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

/// A point in time, to the microsecond. Out: RFC 3339 UTC. In: RFC 3339, or Unix seconds as a number.
/// Years 1 to 9999: what RFC 3339 can write and Postgres can keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, sqlx::Type)]
#[sqlx(transparent)]
pub struct Timestamp(pub DateTime<Utc>);

impl Timestamp {
    /// The present, to the microsecond.
    #[must_use]
    pub fn now() -> Self {
        Self::new(Utc::now()).expect("the clock shows a year from 1 to 9999")
    }

    /// Drops what is finer than a microsecond; none outside the years 1 to 9999.
    #[must_use]
    pub fn new(time: DateTime<Utc>) -> Option<Self> {
        let whole = DateTime::from_timestamp_micros(time.timestamp_micros())?;
        (1..=9999).contains(&whole.year()).then_some(Self(whole))
    }

    /// From Unix time in microseconds.
    #[must_use]
    pub fn from_micros(micros: i64) -> Option<Self> {
        Self::new(DateTime::from_timestamp_micros(micros)?)
    }

    /// Unix time in microseconds.
    #[must_use]
    pub fn micros(self) -> i64 {
        self.0.timestamp_micros()
    }

    /// This time and `delta` more.
    #[must_use]
    pub fn plus(self, delta: TimeDelta) -> Option<Self> {
        Self::new(self.0.checked_add_signed(delta)?)
    }

    fn parse(text: &str) -> Option<Self> {
        Self::new(DateTime::parse_from_rfc3339(text).ok()?.to_utc())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_rfc3339_opts(SecondsFormat::Micros, true))
    }
}

impl std::str::FromStr for Timestamp {
    type Err = String;

    /// RFC 3339, or Unix seconds.
    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = || text.parse::<f64>().ok().and_then(Self::from_seconds);
        Self::parse(text)
            .or_else(seconds)
            .ok_or_else(|| format!("{text:?} is neither RFC 3339 nor Unix seconds"))
    }
}

impl Timestamp {
    /// From the reading of a clock in seconds, if [`is_unix`] takes it for Unix time.
    #[must_use]
    pub fn from_unix(seconds: f64) -> Option<Self> {
        Self::from_seconds(seconds).filter(|_| is_unix(seconds))
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float beyond i64 saturates, and is out of range either way"
    )]
    fn from_seconds(seconds: f64) -> Option<Self> {
        seconds.is_finite().then(|| Self::from_micros((seconds * 1e6).round() as i64))?
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Timestamp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time: RFC 3339, or Unix seconds as a number, in the years 1 to 9999")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Timestamp, E> {
                Timestamp::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }

            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Timestamp, E> {
                Timestamp::from_seconds(seconds)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Float(seconds), &self))
            }

            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Timestamp, E> {
                let time = seconds.checked_mul(1_000_000).and_then(Timestamp::from_micros);
                time.ok_or_else(|| E::invalid_value(de::Unexpected::Signed(seconds), &self))
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Timestamp, E> {
                self.visit_i64(i64::try_from(seconds).unwrap_or(i64::MAX))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl PartialSchema for Timestamp {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new()
            .schema_type(SchemaType::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)));
        let seconds = ObjectBuilder::new()
            .schema_type(SchemaType::Number)
            .minimum(Some(-62_135_596_800_i64))
            .maximum(Some(253_402_300_799_i64))
            .description(Some("Unix seconds (accepted, never sent)"));
        OneOfBuilder::new()
            .item(text)
            .item(seconds)
            .description(Some("Sent as RFC 3339 UTC with microseconds."))
            .into()
    }
}

impl ToSchema for Timestamp {}

/// A JSON object whose members are the client's own: checked to be one, otherwise passed through unparsed.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct FreeForm(Box<RawValue>);

impl FreeForm {
    /// The object as JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
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
            .description(Some("A free-form object; its values are kept (a number perhaps written otherwise, of repeated members the last)."))
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

/// Whether a clock's reading in seconds is Unix time: from 1e9, the ninth of September 2001. One that counts from the
/// machine's start shows less.
#[must_use]
pub fn is_unix(seconds: f64) -> bool {
    seconds >= 1e9
}

/// For fields that name a record: the hash of a request leaves them out, while the OpenAPI document does not.
pub fn names_it<T>(_: &T) -> bool {
    true
}

/// Hash of a request as parsed, that is without nulls and whatever the order of an object's members: the same request
/// sent again has the same hash. Ids are no part of it; where one matters it has found the record already.
pub fn request_hash(request: &impl Serialize) -> Vec<u8> {
    let mut canonical = Vec::with_capacity(4 << 10);
    let mut serializer = serde_json::Serializer::with_formatter(&mut canonical, Canonical);
    request.serialize(&mut serializer).expect("requests come from JSON and go back to it");
    Sha256::digest(canonical)[..16].to_vec()
}

/// Writes what was passed through unparsed with its members sorted; all else has an order of its own.
struct Canonical;

impl Formatter for Canonical {
    fn write_raw_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        serde_json::to_writer(writer, &serde_json::from_str::<serde_json::Value>(fragment)?)?;
        Ok(())
    }
}

/// The id of a record whose client could only name it by an `Idempotency-Key`, or whose line in an import has none: the
/// same parts give the same id. A UUID of version 8 (RFC 9562, section 5.8) over SHA-256.
#[must_use]
pub fn derived_id(parts: &[&[u8]]) -> Uuid {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_rfc_3339_or_unix_seconds_and_written_as_utc_microseconds() {
        for (given, expected) in [
            ("\"2025-01-15T10:30:00+02:00\"", "\"2025-01-15T08:30:00.000000Z\""),
            ("\"2025-01-15T10:30:00.1234567Z\"", "\"2025-01-15T10:30:00.123456Z\""),
            ("1704067200", "\"2024-01-01T00:00:00.000000Z\""),
            ("1704067200.25", "\"2024-01-01T00:00:00.250000Z\""),
            ("-1.5", "\"1969-12-31T23:59:58.500000Z\""),
        ] {
            let time: Timestamp = serde_json::from_str(given).expect(given);
            assert_eq!(serde_json::to_string(&time).expect("a string"), expected, "{given}");
        }
        for wrong in
            ["\"yesterday\"", "1e300", "9223372036854775807", "\"+10000-01-01T00:00:00Z\"", "true", "null"]
        {
            assert!(serde_json::from_str::<Timestamp>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_request_hash_ignores_member_order_and_white_space_but_no_value() {
        let hash = |text: &str| request_hash(&serde_json::from_str::<FreeForm>(text).expect(text));
        assert_eq!(hash(r#"{"a": 1, "b": [2]}"#), hash(r#"{"b":[2],"a":1}"#));
        assert_ne!(hash(r#"{"a": 1}"#), hash(r#"{"a": 2}"#));
    }

    #[test]
    fn derived_ids_differ_where_the_parts_are_cut_differently() {
        assert_eq!(derived_id(&[b"ab", b"c"]), derived_id(&[b"ab", b"c"]));
        assert_ne!(derived_id(&[b"ab", b"c"]), derived_id(&[b"a", b"bc"]));
        assert_eq!(derived_id(&[b"a"]).get_version_num(), 8);
    }
}
