//! What an erasure has come to.

/// The kinds of records, as erasures count them.
pub const KINDS: [&str; 8] =
    ["generations", "attempts", "suggestions", "searches", "pairs", "sends", "memories", "queries"];

/// The number of records erased of each kind.
pub type Counts = Vec<(&'static str, u64)>;

/// What a piece of an erasure by age or session has come to.
#[derive(Debug)]
pub struct Piece {
    /// The number of records erased of each kind.
    pub erased: Counts,
    /// Whether there may be more to erase.
    pub more: bool,
}

impl Piece {
    /// Makes the result of a piece after which there may be more if it has erased something.
    #[must_use]
    pub fn of(erased: Counts) -> Self {
        let more = erased.iter().any(|(_, count)| *count > 0);
        Self { erased, more }
    }
}

/// What happens to what was learned from records that are erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learned {
    /// It keeps its weight, and no longer says where that came from.
    Keep,
    /// It is forgotten as well.
    Forget,
}
