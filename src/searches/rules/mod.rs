//! The rules by which searches are followed and learned from. They know neither database nor clock.
//!
//! # What counts, and how much
//!
//! **Weights.** A read counts for every search that is open, by its share: in proportion to the words that the query
//! has in common with the path or with the last pattern looked for, so that of several open searches the right one
//! learns most. The last read before the end counts double, the one before it 1.5, and so on; a file that was edited,
//! too, or that the agent put into its index by hand, three times. What the weak result itself had offered counts
//! half, so that a right result with a low score rises; what failed counts nothing. Hints that are read gain weight,
//! and hints that are not read lose some. What weighs nothing any more, or less, is not shown, and the feed calls it
//! `refuted`.
//!
//! **Corrections.** A prompt that plainly objects ("no, the other file") makes the searches of the turn before again, as if they
//! had come back with just the files that they led to. If the agent then goes to another file, that one is the answer, and the
//! first ones lose what they had gained. Words alone decide nothing: an agent that goes back to the same file was told of
//! something else.
//!
//! **Forks.** A session that is forked repeats the calls of the other under their own ids. An id that was drawn at random stands for
//! the same call in every session; one that only counts (`functions.Grep:0`) is taken within its session.
//!
//! **Decay.** An association keeps the sum of its evidence as of the time of the latest piece. A new piece first brings both
//! to the later of their times, so the sum does not depend on the order in which evidence comes; and it only changes columns
//! that no index has. Where associations are listed, the likeness of the query is multiplied by a factor between 0 and 2 that the
//! weight decides, and of hints that are as likely the one with more weight is first: decay ranks, it never leaves out. Each piece is a row of `association_evidence`, so that erasing a session can take just
//! its part away.

pub mod hints;
pub mod learner;
pub mod names;
pub mod paths;
pub mod repository;
pub mod terms;
