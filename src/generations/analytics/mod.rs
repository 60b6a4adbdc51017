//! Analytics of generation logs: how well they end ([`logs`]), which errors their attempts end in and what repairs these
//! (`errors`), and how well prompt templates work ([`prompts`]).

mod errors;
pub mod logs;
pub mod prompts;
pub mod scope;
