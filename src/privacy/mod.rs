//! Privacy: how much of what is posted is kept ([`capture`], [`policy`]), the proof that this was decided
//! before anything is written ([`kept`]), and the hashes that replace texts that are not kept ([`hash_key`]).

pub mod capture;
pub mod hash_key;
pub mod kept;
pub mod policy;
pub mod redact;
