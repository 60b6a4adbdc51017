//! The actions of programs that search, list, read and write files.

use super::options::{Arguments, Takes};
use super::patch::patched_files;
use crate::agents::action::SearchTool;

/// The action of a program. Paths are as they were written.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    /// The program searches files for `query` or, if `files` is false, its input.
    Search { tool: SearchTool, query: String, path: Option<String>, files: bool },
    /// The program prints names of files, which others may search.
    List,
    /// The program shows files.
    Read(Vec<String>),
    /// The program writes files.
    Edit(Vec<String>),
    /// The shell changes to a folder. It is none if it is not known.
    Go(Option<String>),
    /// The program runs a command line.
    Shell(String),
    /// The program runs a command on what it found.
    Each(Vec<String>),
}

const GREP: Takes = Takes {
    short: "efABCmdD",
    attached: None,
    long: &[
        "regexp",
        "file",
        "after-context",
        "before-context",
        "context",
        "max-count",
        "max-depth",
        "include",
        "exclude",
        "exclude-dir",
        "threads",
        "label",
    ],
};

const RIPGREP: Takes = Takes {
    short: "efABCmgtTMjrEd",
    attached: None,
    long: &[
        "regexp",
        "file",
        "after-context",
        "before-context",
        "context",
        "max-count",
        "max-depth",
        "glob",
        "iglob",
        "type",
        "type-not",
        "type-add",
        "max-columns",
        "max-filesize",
        "threads",
        "replace",
        "encoding",
        "engine",
        "sort",
        "sortr",
        "ignore-file",
        "pre",
        "colors",
    ],
};

const AG: Takes = Takes {
    short: "ABCmGp",
    attached: None,
    long: &["after", "before", "context", "max-count", "ignore", "ignore-dir", "depth", "file-search-regex"],
};

const FD: Takes = Takes {
    short: "etEdSocj",
    attached: None,
    long: &[
        "extension",
        "type",
        "exclude",
        "max-depth",
        "min-depth",
        "exact-depth",
        "size",
        "owner",
        "color",
        "threads",
        "changed-within",
        "changed-before",
        "base-directory",
        "search-path",
        "max-results",
    ],
};

const LINES: Takes = Takes { short: "ncs", attached: None, long: &["lines", "bytes", "pid"] };
const NUMBERED: Takes = Takes { short: "bdfhilnsvw", attached: None, long: &[] };
const PAGED: Takes = Takes {
    short: "rlHm",
    attached: None,
    long: &["line-range", "language", "highlight-line", "style", "theme", "color", "paging", "wrap", "tabs"],
};
const SED: Takes = Takes { short: "efl", attached: Some('i'), long: &["expression", "file", "line-length"] };
const AWK: Takes =
    Takes { short: "Ffv", attached: None, long: &["field-separator", "file", "assign", "include"] };
const GIT: Takes = Takes { short: "Cc", attached: None, long: &["git-dir", "work-tree"] };
const NONE: Takes = Takes { short: "", attached: None, long: &[] };

/// Returns the actions of `program` with the arguments `words`.
pub(super) fn effects(program: &str, words: &[String], heredoc: &str) -> Vec<Effect> {
    let with = |takes| Arguments::new(words, takes);
    match program {
        "grep" | "egrep" | "fgrep" | "zgrep" | "ugrep" | "ug" => grep(&with(&GREP)),
        "rg" => ripgrep(&with(&RIPGREP)),
        "ag" | "ack" => grep(&with(&AG)),
        "git" => git(words),
        "find" | "bfs" | "gfind" => find(words),
        "fd" | "fdfind" => fd(words),
        "ls" | "tree" => vec![Effect::List],
        "cat" | "tac" | "less" | "more" | "most" => vec![read(&with(&NONE).rest)],
        "head" | "tail" => vec![read(&with(&LINES).rest)],
        "nl" => vec![read(&with(&NUMBERED).rest)],
        "bat" | "batcat" => vec![read(&with(&PAGED).rest)],
        "sed" | "gsed" => sed(&with(&SED)),
        "awk" | "gawk" | "mawk" => awk(&with(&AWK)),
        "tee" => vec![Effect::Edit(owned(&with(&NONE).rest))],
        "apply_patch" | "applypatch" => {
            let patch = words.first().map_or(heredoc, String::as_str);
            vec![Effect::Edit(patched_files(patch).map(str::to_owned).collect())]
        }
        "cd" | "pushd" => vec![Effect::Go(with(&NONE).rest.first().map(|&folder| folder.to_owned()))],
        "popd" => vec![Effect::Go(None)],
        "bash" | "sh" | "zsh" | "dash" => {
            let arguments = with(&NONE);
            let script = arguments.rest.first().filter(|_| arguments.has(&["c"]));
            script.map(|&script| Effect::Shell(script.to_owned())).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn read(files: &[&str]) -> Effect {
    Effect::Read(files.iter().filter(|file| !file.starts_with('+')).map(|&file| file.to_owned()).collect())
}

fn grep(arguments: &Arguments<'_>) -> Vec<Effect> {
    // A quiet or inverted search only tests or filters.
    if arguments.has(&["q", "quiet", "silent", "v", "invert-match", "L", "files-without-match"]) {
        return Vec::new();
    }
    let patterns = arguments.values(&["e", "regexp"]);
    let mut rest = arguments.rest.iter().copied();
    let query = match patterns.as_slice() {
        [] if arguments.has(&["f", "file"]) => return Vec::new(),
        [] => rest.next().unwrap_or("").to_owned(),
        patterns => patterns.join("|"),
    };
    let path = rest.next().map(str::to_owned);
    let recursive = ["r", "R", "recursive", "dereference-recursive"];
    let files = path.is_some() || arguments.has(&recursive);
    vec![Effect::Search { tool: SearchTool::Grep, query, path, files }]
}

fn ripgrep(arguments: &Arguments<'_>) -> Vec<Effect> {
    if !arguments.has(&["files"]) {
        return grep(arguments);
    }
    let globs = arguments.values(&["g", "glob", "iglob"]);
    let globs: Vec<_> = globs.into_iter().filter(|glob| !glob.starts_with('!')).collect();
    by_name(&globs, arguments.rest.first().copied())
}

/// Returns a search for names, or a list of files if no name is given.
fn by_name(patterns: &[&str], path: Option<&str>) -> Vec<Effect> {
    if patterns.is_empty() {
        return vec![Effect::List];
    }
    let (query, path) = (patterns.join(" "), path.map(str::to_owned));
    vec![Effect::Search { tool: SearchTool::Glob, query, path, files: true }]
}

fn git(words: &[String]) -> Vec<Effect> {
    // Options of git itself precede the subcommand.
    let mut at = 0;
    let mut folder = None;
    while let Some(word) = words.get(at).filter(|word| word.starts_with('-')) {
        let takes = GIT.short.contains(&word[1..]) && word.len() == 2 || GIT.long.contains(&&word[1..]);
        if word == "-C" {
            folder = words.get(at + 1);
        }
        at += if takes { 2 } else { 1 };
    }
    let Some((subcommand, words)) = words.get(at..).and_then(<[String]>::split_first) else {
        return Vec::new();
    };
    let mut effects = match subcommand.as_str() {
        "grep" => grep(&Arguments::new(words, &GREP)),
        "ls-files" => {
            let names = Arguments::new(words, &NONE).rest;
            by_name(&names.into_iter().filter(|name| name.contains('*')).collect::<Vec<_>>(), None)
        }
        _ => Vec::new(),
    };
    for given in &mut effects {
        if let Effect::Search { path, files, .. } = given {
            *files = true;
            *path = match (folder, path.take()) {
                (Some(folder), Some(path)) => Some(format!("{folder}/{path}")),
                (folder, path) => path.or_else(|| folder.cloned()),
            };
        }
    }
    effects
}

/// `find` has a language of its own: folders, then an expression.
fn find(words: &[String]) -> Vec<Effect> {
    let words = &words[words.iter().take_while(|word| matches!(word.as_str(), "-H" | "-L" | "-P")).count()..];
    let is_path = |word: &&String| !word.starts_with(['-', '(', '!']);
    let folders = words.iter().take_while(is_path).count();
    let (mut names, mut each) = (Vec::new(), Vec::new());
    let mut expression = words[folders..].iter().map(String::as_str).peekable();
    let mut negated = false;
    while let Some(test) = expression.next() {
        match test {
            "-name" | "-iname" | "-path" | "-ipath" | "-wholename" | "-iwholename" | "-regex" | "-iregex" => {
                let name = expression.next().unwrap_or("");
                if !negated && expression.peek() != Some(&"-prune") {
                    names.push(name);
                }
            }
            "-exec" | "-execdir" | "-ok" => {
                let command = expression.by_ref().take_while(|word| !matches!(*word, ";" | "+"));
                each.push(command.filter(|word| *word != "{}").map(str::to_owned).collect::<Vec<_>>());
            }
            _ => {}
        }
        negated = matches!(test, "!" | "-not");
    }
    // What is found is changed, and not shown.
    let says = words.iter().any(|word| matches!(word.as_str(), "-print" | "-print0" | "-ls"));
    let acts = words.iter().any(|word| word == "-delete") || each.iter().any(|words| changes(words));
    if acts && !says {
        return Vec::new();
    }
    let mut effects = by_name(&names, words[..folders].first().map(String::as_str));
    effects.extend(each.into_iter().map(Effect::Each));
    effects
}

/// Returns whether a command that is run for each file changes it.
fn changes(words: &[String]) -> bool {
    let (program, arguments, _) = super::program(words);
    super::changes(program, arguments)
}

fn fd(words: &[String]) -> Vec<Effect> {
    // A command follows these.
    let execute = |word: &String| matches!(word.as_str(), "-x" | "-X" | "--exec" | "--exec-batch");
    let end = words.iter().position(execute).unwrap_or(words.len());
    let arguments = Arguments::new(&words[..end], &FD);
    let extensions: Vec<String> =
        arguments.values(&["e", "extension"]).iter().map(|extension| format!("*.{extension}")).collect();
    let pattern = arguments.rest.first().copied().filter(|pattern| !matches!(*pattern, "." | ""));
    let names: Vec<&str> = pattern.into_iter().chain(extensions.iter().map(String::as_str)).collect();
    let mut effects = by_name(&names, arguments.rest.get(1).copied());
    if let Some(command) = words.get(end + 1..) {
        let command = command.iter().filter(|word| !matches!(word.as_str(), "{}" | ";"));
        effects.push(Effect::Each(command.cloned().collect()));
    }
    effects
}

fn sed(arguments: &Arguments<'_>) -> Vec<Effect> {
    // On some systems the suffix after -i is a word of its own, and empty.
    let mut files = arguments.rest.iter().copied().filter(|word| !word.is_empty());
    if !arguments.has(&["e", "expression", "f", "file"]) {
        files.next();
    }
    let files: Vec<_> = files.collect();
    vec![if arguments.has(&["i", "in-place"]) { Effect::Edit(owned(&files)) } else { read(&files) }]
}

fn awk(arguments: &Arguments<'_>) -> Vec<Effect> {
    let script = usize::from(!arguments.has(&["f", "file"]));
    // The other words may be assignments.
    let files = arguments.rest.iter().copied().skip(script).filter(|word| !word.contains('='));
    vec![read(&files.collect::<Vec<_>>())]
}
