//! What a project keeps in each domain, and how that choice is applied.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, Schema};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use super::capture::Capture;
use super::hash_key::HashKey;
use super::kept::Kept;
use super::redact::{GroupName, Redaction, Redactor, Texts};
use crate::domain::{Domain, Event};

/// The number of bytes of texts after which the other requests of a thread should not wait for the rules any longer. Those with many
/// names of secrets take milliseconds for so many.
const LONG: usize = 4 << 10;

/// A posted value that can be reduced to what is not text.
pub trait Private: Sized {
    /// The domain whose capture setting applies to the value.
    fn domain(&self) -> Domain;

    /// Returns what remains of the value under [`Capture::Metadata`]: numbers, verdicts, names, times, and, in place of
    /// texts that are compared, hashes made with `key`. Returns none if the value means nothing without its text.
    fn reduce(self, key: &HashKey) -> Option<Self>;

    /// Applies the project's redaction rules to all texts, updates what was derived from them, and hides the hashes of what
    /// was sent. Of a reduced value, the texts that are left are names.
    fn redact(&mut self, redaction: &mut Redaction<'_>);
}

impl Private for Event {
    fn domain(&self) -> Domain {
        self.domain()
    }

    fn reduce(self, key: &HashKey) -> Option<Self> {
        self.reduce(key)
    }

    fn redact(&mut self, redaction: &mut Redaction<'_>) {
        self.redact(redaction);
    }
}

/// What a project keeps in each domain.
#[derive(Debug, Clone)]
pub struct Policy {
    captures: [Capture; Domain::ALL.len()],
    redactor: Arc<Redactor>,
    key: HashKey,
}

impl Policy {
    /// Makes the policy of a project's choice. `default` is the server's setting for domains that the project
    /// does not mention, and `key` the key of the project's hashes.
    #[must_use]
    pub fn new(choice: Option<&Choice>, default: Capture, redactor: Redactor, key: HashKey) -> Self {
        let capture = |domain: Domain| {
            let chosen = match choice {
                None => default,
                Some(Choice::All(capture)) => *capture,
                Some(Choice::Some(by_domain)) => by_domain.get(domain).unwrap_or(default),
            };
            if domain.has_metadata() || chosen == Capture::Full { chosen } else { Capture::Off }
        };
        Self { captures: Domain::ALL.map(capture), redactor: Arc::new(redactor), key }
    }

    /// Returns how much the project keeps in `domain`.
    #[must_use]
    pub fn capture(&self, domain: Domain) -> Capture {
        self.captures[domain as usize]
    }

    /// Reduces `value` to what the project keeps of it, or to none if the project keeps nothing. What it keeps is redacted.
    pub fn keep<T: Private>(&self, value: T) -> Option<Kept<T>> {
        let mut value = match self.capture(value.domain()) {
            Capture::Full => value,
            Capture::Metadata => value.reduce(&self.key)?,
            Capture::Off => return None,
        };
        let mut redaction = Redaction::new(&self.redactor, &self.key);
        value.redact(&mut redaction);
        Some(Kept::new(value, redaction.spans()))
    }

    /// Returns how much effort the texts take that `show` shows, as a number of bytes. They are not changed.
    pub fn effort(&self, show: impl FnOnce(&mut Redaction<'_>)) -> usize {
        let mut counting = Redaction::counting(&self.redactor, &self.key);
        show(&mut counting);
        counting.counted()
    }

    /// Returns whether other requests should not wait while the rules are applied to texts of so many bytes, because they are
    /// long, or because the project has expressions of its own, of which nobody knows how long they take.
    #[must_use]
    pub fn may_take_long(&self, bytes: usize) -> bool {
        bytes > LONG || self.redactor.has_custom()
    }

    /// Gives the project's own expressions their spare time again.
    pub fn rest(&self) {
        self.redactor.rest();
    }

    /// Returns the number of bytes that the project's own expressions take.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.redactor.memory()
    }

    /// Returns the key of the project's hashes.
    #[must_use]
    pub fn key(&self) -> &HashKey {
        &self.key
    }

    /// Redacts the name of a session, a topic or a server as it is redacted where it is stored.
    pub fn redact_name(&self, name: &mut impl GroupName) {
        name.group_name(&mut Redaction::new(&self.redactor, &self.key));
    }

    /// Redacts texts that are stored whatever `capture` says, such as prompt templates, or texts that are compared
    /// with stored ones. Returns the number of replaced spans.
    pub fn redact(&self, texts: &mut impl Texts) -> u32 {
        let mut redaction = Redaction::new(&self.redactor, &self.key);
        texts.texts(&mut redaction);
        redaction.spans()
    }
}

/// The setting of each domain that has its own.
pub type CaptureByDomain = ByDomain<Capture>;

/// A project's capture setting: one for all domains, or one for each of several domains. The server's default applies
/// to domains that are not named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = CaptureChoice)]
pub enum Choice {
    /// One setting for all domains.
    All(Capture),
    /// A setting for each domain named.
    Some(CaptureByDomain),
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
                ByDomain::deserialize(MapAccessDeserializer::new(map)).map(Choice::Some)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// The settings of some domains. A domain whose setting is null is treated like one that is not named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ByDomain<T>(BTreeMap<Domain, T>);

impl<T> Default for ByDomain<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Copy> ByDomain<T> {
    /// Returns the setting of a domain, if it is named.
    #[must_use]
    pub fn get(&self, domain: Domain) -> Option<T> {
        self.0.get(&domain).copied()
    }

    /// Returns the domains that are named, with their settings.
    pub fn iter(&self) -> impl Iterator<Item = (Domain, T)> {
        self.0.iter().map(|(domain, setting)| (*domain, *setting))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ByDomain<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = ByDomain<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object by domain")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ByDomain<T>, A::Error> {
                const NAMES: &[&str] = &Domain::NAMES;
                let mut settings = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    let domain = Domain::ALL.into_iter().find(|domain| domain.name() == name);
                    let domain = domain.ok_or_else(|| de::Error::unknown_field(&name, NAMES))?;
                    if let Some(setting) = map.next_value::<Option<T>>()? {
                        settings.insert(domain, setting);
                    }
                }
                Ok(ByDomain(settings))
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

impl<T: ToSchema> PartialSchema for ByDomain<T> {
    fn schema() -> RefOr<Schema> {
        let object = ObjectBuilder::new()
            .description(Some("The setting of each domain that has its own."))
            .additional_properties(Some(AdditionalProperties::FreeForm(false)));
        let properties = Domain::ALL
            .into_iter()
            .fold(object, |object, domain| object.property(domain.name(), Ref::from_schema_name(T::name())));
        properties.into()
    }
}

impl<T: ToSchema> ToSchema for ByDomain<T> {
    fn name() -> Cow<'static, str> {
        format!("{}ByDomain", T::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((T::name().into(), T::schema()));
    }
}
