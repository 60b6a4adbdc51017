//! How much is kept of what is posted.

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::de::{self, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use sha2::Sha256;
use utoipa::ToSchema;
use uuid::Uuid;

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

impl Capture {
    /// Of what is nothing without its text.
    fn text_or_nothing(self) -> Self {
        if self == Self::Full { Self::Full } else { Self::Off }
    }
}

/// How much is kept in each domain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Captures {
    /// Of generation logs.
    pub generations: Capture,
    /// Of suggestion records.
    pub suggestions: Capture,
    /// Of searches, transcripts and hooks. These are text or nothing: `metadata` keeps as little as `off`.
    pub searches: Capture,
}

impl Captures {
    /// The same in all domains.
    #[must_use]
    pub fn all(capture: Capture) -> Self {
        Self { generations: capture, suggestions: capture, searches: capture.text_or_nothing() }
    }
}

/// A project's choice: one for all domains, or one for some, where the server's default holds in the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = CaptureChoice)]
pub enum Choice {
    /// In all domains.
    All(Capture),
    /// In those named.
    Some(ByDomain),
}

/// A choice for some domains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CaptureByDomain)]
pub struct ByDomain {
    /// Of generation logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    generations: Option<Capture>,
    /// Of suggestion records.
    #[serde(skip_serializing_if = "Option::is_none")]
    suggestions: Option<Capture>,
    /// Of searches, transcripts and hooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    searches: Option<Capture>,
}

impl Choice {
    /// What holds in each domain, where `default` does in those not named.
    #[must_use]
    pub fn or(self, default: Capture) -> Captures {
        match self {
            Self::All(capture) => Captures::all(capture),
            Self::Some(ByDomain { generations, suggestions, searches }) => Captures {
                generations: generations.unwrap_or(default),
                suggestions: suggestions.unwrap_or(default),
                searches: searches.unwrap_or(default).text_or_nothing(),
            },
        }
    }
}

impl<'de> Deserialize<'de> for Choice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Choice;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("full, metadata or off, or one of these by domain")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Choice, E> {
                Capture::deserialize(text.into_deserializer()).map(Choice::All)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Choice, A::Error> {
                ByDomain::deserialize(de::value::MapAccessDeserializer::new(map)).map(Choice::Some)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A project as its events are taken: what is kept of them, and the key of the hashes that stand in for texts.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// The project.
    pub name: Arc<str>,
    /// What is kept.
    pub captures: Captures,
    /// The key.
    pub key: HashKey,
}

/// The key of hashes that stand in for texts: without it, nobody can try out what a text may have been, and hashes of
/// different projects cannot be compared.
#[derive(Clone)]
pub struct HashKey(Arc<[u8]>);

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey")
    }
}

/// Length of a keyed hash in bytes.
pub const HASH: usize = 16;

impl HashKey {
    /// The key of these bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }

    /// HMAC-SHA-256, cut to sixteen bytes.
    #[must_use]
    pub fn hash(&self, text: &[u8]) -> [u8; HASH] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key may have any length");
        mac.update(text);
        let whole = mac.finalize().into_bytes();
        whole[..HASH].try_into().expect("SHA-256 has more bytes")
    }

    /// An id that does not tell what it was derived from.
    #[must_use]
    pub fn id(&self, id: Uuid) -> Uuid {
        uuid::Builder::from_custom_bytes(self.hash(id.as_bytes())).into_uuid()
    }
}
