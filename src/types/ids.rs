//! How records and requests are told apart: the hash that tells a replay from a conflict, and ids derived from content.

use std::collections::HashMap;
use std::io;

use serde::Serialize;
use serde_json::ser::Formatter;
use sha2::{Digest, Sha256};
use uuid::Uuid;

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

/// The id of a line that has none of its own, and is the `nth` that reads so.
#[must_use]
pub fn line_id(project: &str, line: &[u8], nth: u32) -> Uuid {
    derived_id(&[b"line", project.as_bytes(), line, &nth.to_be_bytes()])
}

/// Makes ids for the lines of an import that have none: the same line, at the same place among its equals, gets the same
/// id every time.
#[derive(Debug, Default)]
pub struct LineIds(HashMap<[u8; 16], u32>);

impl LineIds {
    /// The id of the next line, which reads so.
    pub fn next(&mut self, project: &str, line: &[u8]) -> Uuid {
        let seen = self.0.entry(derived_id(&[line]).into_bytes()).or_default();
        *seen += 1;
        line_id(project, line, *seen)
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
