//! Privacy: how much of what is posted is kept ([`capture`], [`policy`]), the proof that this was decided
//! before anything is written ([`kept`]), the hashes that replace texts that are not kept ([`hash_key`]), and the
//! cutting of texts before they are redacted ([`cut`]).

pub mod capture;
pub mod cut;
pub mod hash_key;
pub mod kept;
pub mod policy;
pub mod redact;
