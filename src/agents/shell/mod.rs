//! The searches, reads and writes of shell commands.
//!
//! Agents without tools of their own for it use `rg`, `find`, `cat` and `sed -n`. [`split`](mod@split) divides a
//! command line into its commands, and [`programs`] knows what each of them does. This module follows paths through
//! `cd`, and distinguishes commands that search from those that only filter another command's output, or whose matches the agent
//! does not see. Only the status of a whole command line is known, so that what runs in the place of another command reads nothing
//! that is known.

mod options;
mod patch;
mod programs;
mod split;

use std::collections::HashSet;
use std::rc::Rc;

pub(super) use self::patch::patched_files;
use self::programs::{Effect, effects};
use self::split::{Command, Output, Part, split};
use super::action::{MOST_ACTIONS, MOST_PATH, Room, SearchTool, ToolAction};
use crate::privacy::cut::beginning;
use crate::types::path::is_absolute;

/// The maximum depth of a shell in a shell, or of a command run by `find`.
const DEPTH: usize = 3;

/// The maximum number of bytes of a command line that are parsed.
const MOST_BYTES: usize = 256 << 10;

/// Returns the actions of `command`, in order. Relative paths are resolved from `directory`, if it is given. Paths
/// that only the shell knows (variables, patterns) are left out.
#[must_use]
pub(super) fn actions(command: &str, directory: Option<&str>) -> Vec<ToolAction> {
    let command = beginning(command, MOST_BYTES);
    let directory = possible(directory).unwrap_or("");
    let mut walk =
        Walk { folders: vec![Some(directory.into())], room: Room::of(command.len()), ..Walk::default() };
    walk.line(command, DEPTH);
    walk.actions
}

/// Returns a folder unless it is longer than any folder is. Every path would be joined to it, and take as much memory.
pub(super) fn possible<F: AsRef<str>>(folder: Option<F>) -> Option<F> {
    folder.filter(|folder| folder.as_ref().len() <= MOST_PATH)
}

/// Joins `path` to the `folder` from which it is seen.
pub(super) fn join(folder: &str, path: &str) -> String {
    if is_absolute(path) || folder.is_empty() {
        return path.to_owned();
    }
    match path.trim_start_matches("./") {
        "" | "." => folder.to_owned(),
        path => format!("{}/{path}", folder.trim_end_matches('/')),
    }
}

/// The state of a command line that is followed from its beginning.
#[derive(Default)]
struct Walk {
    actions: Vec<ToolAction>,
    /// The shell's current folder, and those to which it returns at the ends of groups. A folder is none if it is not
    /// known.
    folders: Vec<Option<Rc<str>>>,
    /// Whether the names of files come through the pipe.
    names_piped: bool,
    /// How many conditions (`if`) have begun. What follows one of them may not run.
    branches: usize,
    /// The files that were written.
    written: HashSet<String>,
    /// How much memory further actions and folders may take.
    room: Room,
}

impl Walk {
    fn line(&mut self, line: &str, depth: usize) {
        let parts = split(line);
        let shown = shown(&parts);
        for (part, is_shown) in parts.into_iter().zip(shown) {
            if self.room.is_used_up() {
                return;
            }
            match part {
                Part::Open => self.folders.push(self.folders.last().cloned().flatten()),
                Part::Close if self.folders.len() > 1 => drop(self.folders.pop()),
                Part::Close => {}
                Part::Run(command) => self.run(&command, is_shown, depth),
            }
        }
    }

    fn folder(&self) -> Option<&str> {
        self.folders.last().and_then(Option::as_deref)
    }

    /// Returns `path` as seen from the beginning of the command line. It is none if only the shell knows the path.
    fn resolve(&self, path: &str) -> Option<String> {
        let known = !path.is_empty() && path != "-" && !path.contains(['$', '`', '*', '?', '{', '\n']);
        if !known || path.starts_with("/dev/") {
            return None;
        }
        if path.starts_with(['/', '~']) {
            return Some(path.to_owned());
        }
        Some(join(self.folder()?, path))
    }

    fn run(&mut self, command: &Command, is_shown: bool, depth: usize) {
        let (program, arguments, from_pipe) = program(&command.words);
        let is_certain = !command.is_alternative && self.branches == 0;
        self.follow_branches(&command.words);
        let listed = std::mem::take(&mut self.names_piped) && command.piped_from;
        for effect in effects(program, arguments, &command.heredoc) {
            match effect {
                Effect::Search { tool, query, path, files } if is_shown => {
                    let files = files || from_pipe || (program == "rg" && !command.piped_from);
                    self.search(
                        if files { Some(tool) } else { listed.then_some(SearchTool::Glob) },
                        query,
                        path,
                    );
                }
                Effect::List => self.names_piped = true,
                Effect::Read(files) if is_certain => self.read_each(&files),
                Effect::Edit(files) => self.edit_each(&files),
                Effect::Go(folder) => {
                    let there = possible(folder.and_then(|folder| self.resolve(&folder)))
                        .filter(|folder| self.room.take(folder.len()));
                    if let Some(here) = self.folders.last_mut() {
                        *here = there.map(Rc::from);
                    }
                }
                Effect::Shell(line) if depth > 0 => {
                    self.folders.push(self.folders.last().cloned().flatten());
                    let outer = self.folders.len();
                    self.line(&line, depth - 1);
                    self.folders.truncate(outer - 1);
                }
                Effect::Each(words) if depth > 0 => {
                    let words = ["xargs".to_owned()].into_iter().chain(words).collect();
                    let each = Command {
                        words,
                        output: command.output,
                        is_alternative: command.is_alternative,
                        ..Command::default()
                    };
                    self.run(&each, is_shown, depth - 1);
                }
                Effect::Search { .. } | Effect::Read(_) | Effect::Shell(_) | Effect::Each(_) => {}
            }
        }
        // A program that sorts or filters names passes names on.
        self.names_piped |= listed;
        self.names_piped &= command.output == Output::Piped;
        if is_certain {
            self.read_each(&command.sources);
        }
        if writes_text(program) {
            self.edit_each(&command.targets);
        } else {
            // Nobody has written what other programs say.
            for target in &command.targets {
                self.note_written(target);
            }
        }
    }

    /// Counts the conditions that begin and end.
    fn follow_branches(&mut self, words: &[String]) {
        let word = words.iter().map(String::as_str).find(|word| !["then", "else", "do", "!"].contains(word));
        match word {
            Some("if" | "case") => self.branches += 1,
            Some("fi" | "esac") => self.branches = self.branches.saturating_sub(1),
            _ => {}
        }
    }

    /// Adds a read for each file, but not for what this command line has written.
    fn read_each(&mut self, files: &[String]) {
        for file in files {
            if let Some(path) = self.resolve(file)
                && !self.written.contains(&path)
                && !self.add(ToolAction::Read { path })
            {
                return;
            }
        }
    }

    /// Adds an edit for each file.
    fn edit_each(&mut self, files: &[String]) {
        for file in files {
            self.note_written(file);
            if let Some(path) = self.resolve(file)
                && !self.add(ToolAction::Edit { path })
            {
                return;
            }
        }
    }

    /// Notes that the command line writes a file.
    fn note_written(&mut self, file: &str) {
        if let Some(path) = self.resolve(file).filter(|path| self.room.take(path.len())) {
            self.written.insert(path);
        }
    }

    fn search(&mut self, tool: Option<SearchTool>, query: String, path: Option<String>) {
        let known = !query.trim().is_empty() && !query.starts_with('$') && !query.contains("$()");
        if let Some(tool) = tool.filter(|_| known) {
            let path = path.and_then(|path| self.resolve(&path));
            let path = path.or_else(|| self.folder().filter(|folder| !folder.is_empty()).map(str::to_owned));
            self.add(ToolAction::Search { tool, query, path });
        }
    }

    /// Adds an action. Returns whether there was room for it.
    fn add(&mut self, action: ToolAction) -> bool {
        let fits = self.actions.len() < MOST_ACTIONS && self.room.take(action.size());
        if fits {
            self.actions.push(action);
        }
        fits
    }
}

/// Returns for each part whether what it prints is shown, as far as it is a command: not if it is written to a file, or if a
/// command that it is passed to does something with it in place of showing it.
fn shown(parts: &[Part]) -> Vec<bool> {
    let mut shown = vec![true; parts.len()];
    for at in (0..parts.len()).rev() {
        let Part::Run(command) = &parts[at] else { continue };
        shown[at] = match (command.output, parts.get(at + 1)) {
            (Output::Kept, _) => false,
            (Output::Piped, Some(Part::Run(next))) if next.piped_from => {
                shown[at + 1] && passes_on(&next.words)
            }
            _ => true,
        };
    }
    shown
}

/// Returns whether a command in a pipeline shows something of what it gets. One that runs a program for each name does not if the
/// program changes files.
fn passes_on(words: &[String]) -> bool {
    let (program, arguments, from_pipe) = program(words);
    !from_pipe || !changes(program, arguments)
}

/// Returns whether a program changes files, and says nothing of them.
fn changes(program: &str, arguments: &[String]) -> bool {
    const CHANGERS: [&str; 12] = [
        "black", "chmod", "chown", "cp", "gofmt", "ln", "mv", "prettier", "rm", "rustfmt", "touch", "unlink",
    ];
    const OF_GIT: [&str; 5] = ["add", "checkout", "mv", "restore", "rm"];
    let has_option = |options: &[&str]| {
        let is_one = |word: &String| options.iter().any(|option| word.starts_with(option));
        arguments.iter().any(is_one)
    };
    match program {
        "git" => arguments.first().is_some_and(|command| OF_GIT.contains(&command.as_str())),
        "sed" | "gsed" => has_option(&["-i", "--in-place"]),
        "perl" | "ruby" => has_option(&["-i", "-pi", "-ni"]),
        program => CHANGERS.contains(&program),
    }
}

/// Returns whether people write files by a program. The output of others is a log.
fn writes_text(program: &str) -> bool {
    ["", "awk", "cat", "echo", "gawk", "jq", "printf", "sed", "tee"].contains(&program)
}

/// Finds the program that `words` run and its arguments, without what precedes it: keywords, assignments, and
/// programs that run others. Also returns whether the last arguments come through the pipe.
fn program(mut words: &[String]) -> (&str, &[String], bool) {
    let mut from_pipe = false;
    while let Some((first, rest)) = words.split_first() {
        let skipped = match first.as_str() {
            "if" | "then" | "elif" | "else" | "while" | "until" | "do" | "!" | "time" | "exec"
            | "command" | "builtin" | "nohup" | "rtk" => 0,
            "sudo" | "env" | "nice" | "stdbuf" => {
                rest.iter().take_while(|word| word.starts_with('-')).count()
            }
            "timeout" => rest.iter().take_while(|word| word.starts_with('-')).count() + 1,
            "xargs" => {
                from_pipe = true;
                xargs_options(rest)
            }
            word if is_assignment(word) => 0,
            word => return (word.rsplit('/').next().unwrap_or(word), rest, from_pipe),
        };
        words = rest.get(skipped..).unwrap_or(&[]);
    }
    ("", &[], from_pipe)
}

/// Counts how many of `words` are options of `xargs` and their values.
fn xargs_options(words: &[String]) -> usize {
    let mut at = 0;
    while let Some(word) = words.get(at).filter(|word| word.starts_with('-')) {
        at += if matches!(word.as_str(), "-n" | "-P" | "-I" | "-L" | "-d" | "-s" | "-a" | "-E") {
            2
        } else {
            1
        };
    }
    at
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

#[cfg(test)]
mod tests;
