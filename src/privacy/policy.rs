//! What a project keeps, by domain, and its doing.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, Schema};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use super::capture::Capture;
use super::hash_key::HashKey;
use super::kept::Kept;
use crate::domain::{Domain, Event};

/// Something posted that says how it is reduced to what is no text.
pub trait Private: Sized {
    /// The domain whose choice it falls under.
    fn domain(&self) -> Domain;

    /// What is left of it under [`Capture::Metadata`]: figures, verdicts, names, times, and hashes with `key`. A thing that is
    /// nothing without its text leaves nothing.
    fn reduce(self, key: &HashKey) -> Option<Self>;
}

impl Private for Event {
    fn domain(&self) -> Domain {
        self.domain()
    }

    fn reduce(self, key: &HashKey) -> Option<Self> {
        self.reduce(key)
    }
}

/// What a project keeps.
#[derive(Debug, Clone)]
pub struct Policy {
    captures: [Capture; Domain::ALL.len()],
    key: HashKey,
}

impl Policy {
    /// A project's choice, with the server's `default` in what it does not choose, and the key of its hashes.
    #[must_use]
    pub fn new(choice: Option<&Choice>, default: Capture, key: HashKey) -> Self {
        let capture = |domain: Domain| {
            let chosen = match choice {
                None => default,
                Some(Choice::All(capture)) => *capture,
                Some(Choice::Some(ByDomain(by_domain))) => *by_domain.get(&domain).unwrap_or(&default),
            };
            if domain.has_metadata() || chosen == Capture::Full { chosen } else { Capture::Off }
        };
        Self { captures: Domain::ALL.map(capture), key }
    }

    /// How much is kept in a domain.
    #[must_use]
    pub fn capture(&self, domain: Domain) -> Capture {
        self.captures[domain as usize]
    }

    /// What of a thing is kept, if anything is.
    pub fn keep<T: Private>(&self, value: T) -> Option<Kept<T>> {
        match self.capture(value.domain()) {
            Capture::Full => Some(Kept::new(value)),
            Capture::Metadata => value.reduce(&self.key).map(Kept::new),
            Capture::Off => None,
        }
    }
}

/// A project's choice: one for all domains, or one for some, where the server's default holds in the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = CaptureChoice)]
pub enum Choice {
    /// The same in all domains.
    All(Capture),
    /// A choice of its own in each domain named.
    Some(ByDomain),
}

/// A choice for some domains.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ByDomain(BTreeMap<Domain, Capture>);

impl PartialSchema for ByDomain {
    fn schema() -> RefOr<Schema> {
        let object = ObjectBuilder::new()
            .description(Some("A choice for some domains."))
            .additional_properties(Some(AdditionalProperties::FreeForm(false)));
        let properties = Domain::ALL
            .into_iter()
            .fold(object, |object, domain| object.property(domain.name(), Ref::from_schema_name("Capture")));
        properties.into()
    }
}

impl ToSchema for ByDomain {
    fn name() -> std::borrow::Cow<'static, str> {
        "CaptureByDomain".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((Capture::name().into(), Capture::schema()));
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

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Choice, A::Error> {
                const NAMES: &[&str] = &Domain::NAMES;
                let mut chosen = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    let domain = Domain::ALL.into_iter().find(|domain| domain.name() == name);
                    let domain = domain.ok_or_else(|| de::Error::unknown_field(&name, NAMES))?;
                    // A domain that is null is left out.
                    if let Some(capture) = map.next_value::<Option<Capture>>()? {
                        chosen.insert(domain, capture);
                    }
                }
                Ok(Choice::Some(ByDomain(chosen)))
            }
        }
        deserializer.deserialize_any(Either)
    }
}
