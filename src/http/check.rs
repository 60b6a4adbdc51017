//! What a parsed request must satisfy beyond its types.

use crate::error::{Error, FieldError, Result};

/// What a parsed value must satisfy beyond its types. Reports every field that does not.
pub trait Check {
    /// Adds what is wrong to `checks`; nothing, where every value of the type is good.
    fn check(&self, _checks: &mut Checks) {}
}

/// Collects what is wrong with a request, by JSON Pointer.
#[derive(Debug, Default)]
pub struct Checks {
    prefix: String,
    errors: Vec<FieldError>,
}

impl Checks {
    /// The value itself, if it satisfies its checks.
    pub fn of<T: Check>(value: T) -> Result<T> {
        let mut checks = Self::default();
        value.check(&mut checks);
        checks.finish().map(|()| value)
    }

    /// An error, if anything was reported.
    pub fn finish(self) -> Result<()> {
        if self.errors.is_empty() { Ok(()) } else { Err(Error::Invalid(self.errors)) }
    }

    /// Reports `field` (a pointer's last part) as wrong.
    pub fn fail(&mut self, field: &str, detail: impl Into<String>) {
        self.errors.push(FieldError { pointer: format!("{}/{field}", self.prefix), detail: detail.into() });
    }

    /// Reports `field` unless `holds`.
    pub fn require(&mut self, holds: bool, field: &str, detail: &str) {
        if !holds {
            self.fail(field, detail);
        }
    }

    /// A text that must not be empty, of at most `most` characters.
    pub fn text(&mut self, field: &str, text: &str, most: usize) {
        self.require(!text.is_empty(), field, "must not be empty");
        if text.len() > most && text.chars().count() > most {
            self.fail(field, format!("has more than {most} characters"));
        }
    }

    /// A name, id or other short text of at most 200 characters, if given.
    pub fn name(&mut self, field: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(field, text, 200);
        }
    }

    /// A count or duration, if given: not negative.
    pub fn count(&mut self, field: &str, count: Option<i32>) {
        self.require(count.is_none_or(|count| count >= 0), field, "must not be negative");
    }

    /// Checks a nested value; its pointers begin with `field`.
    pub fn nested(&mut self, field: &str, value: &impl Check) {
        let length = self.prefix.len();
        self.prefix.push('/');
        self.prefix.push_str(field);
        value.check(self);
        self.prefix.truncate(length);
    }
}
