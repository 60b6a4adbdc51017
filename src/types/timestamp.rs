//! A point in time, as every domain reads, stores and sends it.

use std::fmt;

use chrono::{DateTime, Datelike, SecondsFormat, TimeDelta, Utc};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, OneOfBuilder, SchemaFormat, Type as SchemaType};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A point in time, to the microsecond, in the years 1 to 9999, which both RFC 3339 and Postgres can
/// represent. It is sent as RFC 3339 in UTC, and read as RFC 3339 or as a number of Unix seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, sqlx::Type)]
#[sqlx(transparent)]
pub struct Timestamp(pub DateTime<Utc>);

impl Timestamp {
    /// Returns the present time, to the microsecond.
    #[must_use]
    pub fn now() -> Self {
        Self::new(Utc::now()).expect("the clock shows a year from 1 to 9999")
    }

    /// Cuts `time` to microseconds. Returns none outside the years 1 to 9999.
    #[must_use]
    pub fn new(time: DateTime<Utc>) -> Option<Self> {
        let whole = DateTime::from_timestamp_micros(time.timestamp_micros())?;
        (1..=9999).contains(&whole.year()).then_some(Self(whole))
    }

    /// Makes a timestamp of Unix time in microseconds. Returns none outside the years 1 to 9999.
    #[must_use]
    pub fn from_micros(micros: i64) -> Option<Self> {
        Self::new(DateTime::from_timestamp_micros(micros)?)
    }

    /// Returns the Unix time in microseconds.
    #[must_use]
    pub fn micros(self) -> i64 {
        self.0.timestamp_micros()
    }

    /// Returns the time that is `delta` later, or none if that is after the year 9999.
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

    /// Reads RFC 3339 or Unix seconds.
    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = || text.parse::<f64>().ok().and_then(Self::from_seconds);
        Self::parse(text)
            .or_else(seconds)
            .ok_or_else(|| format!("{text:?} is neither RFC 3339 nor Unix seconds"))
    }
}

impl Timestamp {
    /// Makes a timestamp of a clock's reading in seconds. Returns none if [`is_unix`] does not take it for
    /// Unix time.
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
            .exclusive_maximum(Some(253_402_300_800_i64))
            .description(Some("Unix seconds, which requests may contain"));
        OneOfBuilder::new()
            .item(text)
            .item(seconds)
            .description(Some("Responses contain times as RFC 3339 in UTC with microseconds."))
            .into()
    }
}

impl ToSchema for Timestamp {}

/// Returns whether a clock's reading in seconds is Unix time, that is at least 1e9 (9 September 2001). A
/// clock that counts from the machine's start shows less.
#[must_use]
pub fn is_unix(seconds: f64) -> bool {
    seconds >= 1e9
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
}
