//! Values that every domain shares: [`Timestamp`], [`OptionalName`], [`FreeForm`] objects, texts that are searched for
//! ([`Contained`]), JSON of others as a [`value`], and what [`ids`] and hashes are made of.

mod contained;
mod free_form;
pub mod ids;
mod optional_name;
pub mod path;
mod timestamp;
pub mod value;

pub use contained::Contained;
pub use free_form::FreeForm;
pub use ids::{derived_id, names_it, request_hash};
pub use optional_name::OptionalName;
pub use timestamp::{Timestamp, is_unix};
