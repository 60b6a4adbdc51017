//! The weights of the model. `examples/fit_confidence.rs` has written this file; those of the evidence are fitted to 1870
//! turns of 5 public sets (multi-turn questions over passages, web queries and functions, long chats, coding
//! sessions, commits and the fixes after them), the others are chosen by hand.

use super::Coefficients;

/// The weights in force.
pub(super) const COEFFICIENTS: Coefficients = Coefficients {
    intercept: -2.3533,
    // In this order: saturation, lead, grams, phrases, shared, size, earlier.
    evidence: [1.0523, 2.4818, 1.0072, 1.3834, 0.8002, -0.5299, 1.5100],
    recency: 0.5,
    importance: 1.0,
    root: 0.5,
    verdicts: 1.5,
};
