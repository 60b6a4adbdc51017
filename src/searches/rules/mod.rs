//! The rules by which searches are followed and learned from. They know neither database nor clock.

pub mod learner;
pub mod paths;
pub mod terms;
