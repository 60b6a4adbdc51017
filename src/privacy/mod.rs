//! Privacy: how much of what is posted is kept ([`capture`], [`policy`]), decided before anything is written ([`kept`]), and
//! what stands in for texts that are not ([`hash_key`]).

pub mod capture;
pub mod hash_key;
pub mod kept;
pub mod policy;
