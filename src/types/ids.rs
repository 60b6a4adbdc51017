//! Hashes that tell a repeated request from a conflicting one, and ids that are derived from content.

use std::collections::HashMap;
use std::io::{self, BufWriter};

use serde::Serialize;
use serde_json::ser::Formatter;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::value;
use crate::sharing::in_place;

/// Tells serde to leave a field out of the request hash, for use with `skip_serializing_if`. Fields that name
/// the record are left out this way and still appear in the OpenAPI document.
pub fn names_it<T>(_: &T) -> bool {
    true
}

/// Hashes a parsed request, so that the same request sent again has the same hash. Nulls, white space and the
/// order of an object's members make no difference. Ids are left out: where an id matters, it has found the
/// record already.
pub fn request_hash(request: &impl Serialize) -> Vec<u8> {
    const BACK: &str = "requests come from JSON and go back to it";
    let mut canonical = BufWriter::with_capacity(4 << 10, Hashed(Sha256::new()));
    let mut serializer = serde_json::Serializer::with_formatter(&mut canonical, Canonical);
    request.serialize(&mut serializer).expect(BACK);
    let Hashed(hash) = canonical.into_inner().map_err(io::IntoInnerError::into_error).expect(BACK);
    hash.finalize()[..16].to_vec()
}

/// The hash of what is written, which is not kept.
struct Hashed(Sha256);

impl io::Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes unparsed JSON with its members sorted. Everything else is serialized in a fixed order anyway.
struct Canonical;

impl Formatter for Canonical {
    fn write_raw_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        aside(fragment.len(), || Ok(serde_json::to_writer(writer, &value::parse(fragment)?)?))
    }
}

/// The number of bytes of unparsed JSON that take milliseconds to be hashed, or more.
const LONG: usize = 64 << 10;

/// Runs work on so many bytes. If it takes long, the other tasks of this thread are served by another one meanwhile.
fn aside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes > LONG { in_place(work) } else { work() }
}

/// Derives an id from content: the same parts always give the same id. It names a record whose client sent
/// only an `Idempotency-Key`, and a line of an import that has no id. The id is a UUID of version 8 (RFC
/// 9562, section 5.8) made of SHA-256.
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

/// Derives the id of an imported line that has none. `nth` counts lines with the same text, from 1. The project
/// is no part of it, because whoever imports by way of a server need not know which one their key belongs to.
#[must_use]
pub fn line_id(line: &[u8], nth: u32) -> Uuid {
    derived_id(&[b"line", line, &nth.to_be_bytes()])
}

/// Makes ids for the lines of an import that have none. A line's id depends on its text and on how many lines
/// with the same text came before, so importing the same file again gives the same ids.
#[derive(Debug, Default)]
pub struct LineIds(HashMap<[u8; 16], u32>);

impl LineIds {
    /// Returns the id of the next line of the import, whose text is `line`.
    pub fn next(&mut self, line: &[u8]) -> Uuid {
        let seen = self.0.entry(derived_id(&[line]).into_bytes()).or_default();
        *seen += 1;
        line_id(line, *seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_hash_ignores_member_order_and_white_space_but_no_value() {
        let hash =
            |text: &str| request_hash(&serde_json::from_str::<crate::types::FreeForm>(text).expect(text));
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
