//! The rules by which searches are tracked and learned from. They use neither the database nor the clock.
//!
//! # What counts, and how much
//!
//! **Weights.** A read counts for every open search, by its share: in proportion to the words that the query has in
//! common with the path or with the last search pattern, so that of several open searches the right one learns most.
//! The last read before the end counts double, the one before it 1.5 times, and so on. A file that was also edited,
//! or that the agent added to its index, counts three times. A file that the weak search itself returned counts half,
//! so that a right result with a low score rises. A failed action counts nothing. Hints that are read gain weight,
//! and hints that are not read lose some. An association with a weight of 0 or less is not shown, and the feed calls
//! it `refuted`.
//!
//! **Corrections.** A prompt that clearly objects ("no, the other file") repeats the searches of the previous turn,
//! as if they had returned exactly the files that they led to. If the agent then goes to another file, that one is
//! the answer, and the first ones lose what they had gained. The words alone do not decide: if the agent goes back to
//! the same file, the objection was about something else.
//!
//! **Forks.** A forked session repeats the calls of the original under their own ids. An id that was drawn at random
//! is the same call in every session. An id that only counts (`functions.Grep:0`) belongs to its session.
//!
//! **Decay.** An association stores the sum of its evidence as of the time of the latest piece. A new piece first
//! brings both to the later of their times, so that the sum does not depend on the order in which evidence arrives,
//! and only columns without an index change. In lists of associations, the similarity of the query is multiplied by a
//! factor between 0 and 2 that depends on the weight, and of hints with equal scores the one with more weight comes
//! first. Decay therefore changes the order and never leaves anything out. Each piece is a row of
//! `association_evidence`, so that erasing a session removes just its part.

pub mod hints;
pub mod learner;
pub mod names;
pub mod paths;
pub mod repository;
pub mod room;
pub mod terms;
