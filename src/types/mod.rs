//! Values that every domain shares: [`Timestamp`], [`FreeForm`] objects, and what [`ids`] and hashes are made of.

mod free_form;
pub mod ids;
mod timestamp;

pub use free_form::FreeForm;
pub use ids::{derived_id, names_it, request_hash};
pub use timestamp::{Timestamp, is_unix};
