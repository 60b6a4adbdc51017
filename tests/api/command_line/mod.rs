//! The command line: what commands talk to, their help, what they say when something is wrong, and how a server starts.

mod examples;
mod help;
mod messages;
mod operation;
mod pages;
mod snapshots;
mod start;
mod target;

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::support::server::gleaner;

/// A command of the program with these words.
fn command(folder: &TempDir, line: &str) -> Command {
    let mut command = gleaner(folder);
    command.args(line.split(' ')).current_dir(folder.path());
    command
}

/// What a command wrote to standard output.
fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// What a command complained of.
fn complaint(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// Runs a command to its end with this text on standard input.
fn fed(mut command: Command, text: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    child.stdin.take().expect("piped").write_all(text).expect("takes input");
    child.wait_with_output().expect("ends")
}
