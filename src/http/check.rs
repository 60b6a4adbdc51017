//! Checks of a parsed request that its types cannot express.

use crate::error::{Error, FieldError, MOST_ERRORS, Result};
use crate::types::Contained;

/// A value whose fields must satisfy more than their types say.
pub trait Check {
    /// Reports to `checks` every field that is wrong. The default reports none.
    fn check(&self, _checks: &mut Checks) {}
}

/// Collects the fields of a request that are wrong, each named by a JSON Pointer (RFC 6901).
#[derive(Debug, Default)]
pub struct Checks {
    prefix: String,
    errors: Vec<FieldError>,
}

impl Checks {
    /// Returns `value` if it satisfies its checks, and otherwise a 422 that names every wrong field.
    pub fn of<T: Check>(value: T) -> Result<T> {
        let mut checks = Self::default();
        value.check(&mut checks);
        checks.finish().map(|()| value)
    }

    /// Returns a 422 if anything was reported.
    pub fn finish(self) -> Result<()> {
        if self.errors.is_empty() { Ok(()) } else { Err(Error::Invalid(self.errors)) }
    }

    /// Reports `field`, the last part of a JSON Pointer, as wrong. More fields than a problem names are not kept.
    pub fn fail(&mut self, field: &str, detail: impl Into<String>) {
        if self.errors.len() == MOST_ERRORS {
            return;
        }
        self.errors.push(FieldError { pointer: format!("{}/{field}", self.prefix), detail: detail.into() });
    }

    /// Reports `field` unless `holds`.
    pub fn require(&mut self, holds: bool, field: &str, detail: &str) {
        if !holds {
            self.fail(field, detail);
        }
    }

    /// Reports a text that is empty or has more than `most` characters.
    pub fn text(&mut self, field: &str, text: &str, most: usize) {
        self.require(!text.is_empty(), field, "must not be empty");
        self.length(field, text, most);
    }

    fn length(&mut self, field: &str, text: &str, most: usize) {
        if text.len() > most && text.chars().count() > most {
            self.fail(field, format!("has more than {most} characters"));
        }
    }

    /// Reports a text that records are searched for, if given, that is too long.
    pub fn contained(&mut self, field: &str, text: Option<&Contained>) {
        if let Some(text) = text {
            self.length(field, text.as_str(), Contained::MOST);
        }
    }

    /// Reports a name, id or other short text, if given, that is empty or has more than 200 characters.
    pub fn name(&mut self, field: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(field, text, 200);
        }
    }

    /// Reports a count or duration, if given, that is negative.
    pub fn count(&mut self, field: &str, count: Option<i32>) {
        self.require(count.is_none_or(|count| count >= 0), field, "must not be negative");
    }

    /// Checks a nested value, whose fields are reported with pointers that begin with `field`.
    pub fn nested(&mut self, field: &str, value: &impl Check) {
        let length = self.prefix.len();
        self.prefix.push('/');
        self.prefix.push_str(field);
        value.check(self);
        self.prefix.truncate(length);
    }
}
