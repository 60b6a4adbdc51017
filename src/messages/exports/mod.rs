//! The data set of chats.

mod conversations;

use crate::exports::{Described as _, Description};

pub use conversations::Conversations;

/// The data sets with texts of message pairs.
pub(crate) const DATASETS: [&Description; 1] = [&Conversations::DESCRIPTION];
