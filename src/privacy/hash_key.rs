//! Keyed hashes, which replace texts that are not kept.

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use uuid::Uuid;

/// A project's secret key for the hashes that replace texts. Without the key nobody can test a guess at a
/// text against its hash, and hashes of different projects cannot be compared.
#[derive(Clone)]
pub struct HashKey(Arc<[u8]>);

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey")
    }
}

/// The length of a keyed hash in bytes.
pub const HASH: usize = 16;

impl HashKey {
    /// Makes a key of these bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }

    /// Returns the HMAC-SHA-256 of `text` (RFC 2104), cut to 16 bytes.
    #[must_use]
    pub fn hash(&self, text: &[u8]) -> [u8; HASH] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key may have any length");
        mac.update(text);
        let whole = mac.finalize().into_bytes();
        whole[..HASH].try_into().expect("SHA-256 has more bytes")
    }

    /// Returns an id that does not reveal the id it was derived from.
    #[must_use]
    pub fn id(&self, id: Uuid) -> Uuid {
        uuid::Builder::from_custom_bytes(self.hash(id.as_bytes())).into_uuid()
    }
}
