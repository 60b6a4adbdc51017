//! Divides a command line into its commands: at pipes, `&&`, `;` and line ends, but not within quotes, substitutions
//! and heredocs. [`shlex`] then splits the words.
//!
//! It reads each byte a bounded number of times and never fails. Text that is not valid shell is parsed as far as
//! possible.

/// The maximum depth of substitutions within substitutions.
const DEPTH: usize = 3;

/// A part of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// A group in parentheses or braces, or a substitution, begins.
    Open,
    /// A group or substitution ends.
    Close,
    /// A command runs.
    Run(Command),
}

/// A program with its arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Command {
    /// The program and its arguments, without quotes. Where a word holds a variable or substitution, a `$` or `` ` `` is
    /// left in it.
    pub(super) words: Vec<String>,
    /// Whether another command's output is its input.
    pub(super) piped_from: bool,
    /// The destination of the output.
    pub(super) output: Output,
    /// The files from which the input comes.
    pub(super) sources: Vec<String>,
    /// The files to which the output goes.
    pub(super) targets: Vec<String>,
    /// The text of the heredocs.
    pub(super) heredoc: String,
    /// Whether another command runs in its place if it fails (`||`), or it runs in the place of another one.
    pub(super) is_alternative: bool,
}

/// The destination of a command's output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Output {
    /// The output is shown to the user who ran the command line.
    #[default]
    Shown,
    /// The output goes to the next command of a pipeline.
    Piped,
    /// The output goes to a file, a variable or another command's arguments.
    Kept,
}

/// Divides `line` into its commands, in the order in which they run.
pub(super) fn split(line: &str) -> Vec<Part> {
    split_within(line, DEPTH)
}

fn split_within(line: &str, depth: usize) -> Vec<Part> {
    let mut splitter = Splitter { rest: line, depth, ..Splitter::default() };
    splitter.run();
    splitter.parts
}

#[derive(Default)]
struct Splitter<'a> {
    rest: &'a str,
    depth: usize,
    parts: Vec<Part>,
    command: Command,
    /// The words of the command, as they are written.
    raw: String,
    /// The heredocs that begin at the next line, by their ends, and whether leading tabs are removed.
    heredocs: Vec<(String, bool)>,
    /// The parts of the substitutions in the command, which run before it.
    substitutions: Vec<Part>,
}

impl Splitter<'_> {
    fn run(&mut self) {
        loop {
            self.skip_blanks();
            let mut chars = self.rest.chars();
            let Some(first) = chars.next() else { break };
            let second = chars.next();
            match (first, second) {
                ('\n', _) => {
                    self.advance(1);
                    self.take_heredocs();
                    self.end_command(Output::Shown);
                }
                ('#', _) => self.advance(self.rest.find('\n').unwrap_or(self.rest.len())),
                ('&', Some('>')) => {
                    self.advance(1);
                    self.redirect(None);
                }
                ('|', Some('&')) => {
                    self.advance(2);
                    self.end_command(Output::Piped);
                }
                ('|', second) if second != Some('|') => {
                    self.advance(1);
                    self.end_command(Output::Piped);
                }
                ('|', _) => {
                    self.advance(2);
                    self.command.is_alternative = true;
                    self.end_command(Output::Shown);
                    self.command.is_alternative = true;
                }
                ('&' | ';', second) => {
                    self.advance(if second == Some(first) { 2 } else { 1 });
                    self.end_command(Output::Shown);
                }
                ('<' | '>', Some('(')) => self.word(),
                ('<' | '>', _) => self.redirect(None),
                ('(', _) => self.group(Part::Open),
                (')', _) => self.group(Part::Close),
                ('{', Some(' ' | '\t' | '\n')) if self.raw.is_empty() => self.group(Part::Open),
                ('}', None | Some(' ' | '\t' | '\n' | ';' | '|' | '&' | '>' | ')'))
                    if self.raw.is_empty() =>
                {
                    self.group(Part::Close);
                }
                _ => self.word(),
            }
        }
        self.end_command(Output::Shown);
    }

    fn advance(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    /// Skips blanks, and line ends that a backslash hides.
    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest.trim_start_matches([' ', '\t', '\r']);
            self.rest = rest.strip_prefix("\\\n").unwrap_or(rest);
            if self.rest.len() == rest.len() {
                return;
            }
        }
    }

    fn group(&mut self, part: Part) {
        self.advance(1);
        self.end_command(Output::Shown);
        self.parts.push(part);
    }

    /// Adds a word to the command, or returns the redirection if the word is the number before it.
    fn word(&mut self) {
        let word = self.raw_word();
        if word.bytes().all(|byte| byte.is_ascii_digit()) && self.rest.starts_with(['<', '>']) {
            self.redirect(Some(word == "1" || word == "0"));
            return;
        }
        self.raw.push_str(&word);
        self.raw.push(' ');
    }

    /// Returns the word that begins here as it is written, with `$()` in place of each substitution, whose commands
    /// are added.
    fn raw_word(&mut self) -> String {
        let mut word = String::new();
        while let Some(first) = self.rest.chars().next() {
            let length = match first {
                ' ' | '\t' | '\r' | '\n' | ';' | '|' | '&' | ')' => break,
                '(' if !word.is_empty() && !word.ends_with(['=', '@', '?', '*', '+', '!']) => break,
                '<' | '>' if !self.rest[1..].starts_with('(') => break,
                '\\' if self.rest[1..].starts_with('\n') => {
                    self.advance(2);
                    continue;
                }
                '\\' => 1 + self.rest[1..].chars().next().map_or(0, char::len_utf8),
                '\'' => self.rest[1..].find('\'').map_or(self.rest.len(), |end| end + 2),
                '"' => {
                    self.double_quoted(&mut word);
                    continue;
                }
                '$' | '<' | '>' if self.rest[1..].starts_with('(') => {
                    self.substitution(&mut word);
                    continue;
                }
                '`' => {
                    self.backquoted(&mut word);
                    continue;
                }
                other => other.len_utf8(),
            };
            word.push_str(&self.rest[..length]);
            self.advance(length);
        }
        word
    }

    fn double_quoted(&mut self, word: &mut String) {
        word.push('"');
        self.advance(1);
        while let Some(first) = self.rest.chars().next() {
            let length = match first {
                '"' => {
                    self.advance(1);
                    break;
                }
                '\\' => 1 + self.rest[1..].chars().next().map_or(0, char::len_utf8),
                '$' if self.rest[1..].starts_with('(') => {
                    self.substitution(word);
                    continue;
                }
                '`' => {
                    self.backquoted(word);
                    continue;
                }
                other => other.len_utf8(),
            };
            word.push_str(&self.rest[..length]);
            self.advance(length);
        }
        word.push('"');
    }

    /// Reads `$(…)`, `<(…)` or `>(…)`.
    fn substitution(&mut self, word: &mut String) {
        let inner = &self.rest[2..];
        let length = substitution_length(inner);
        self.rest = inner.get(length + 1..).unwrap_or("");
        word.push_str("$()");
        self.substituted(&inner[..length]);
    }

    fn backquoted(&mut self, word: &mut String) {
        let inner = &self.rest[1..];
        let length = inner.find('`').unwrap_or(inner.len());
        self.rest = inner.get(length + 1..).unwrap_or("");
        word.push_str("$()");
        self.substituted(&inner[..length]);
    }

    fn substituted(&mut self, inner: &str) {
        // An inner parenthesis right at the beginning is arithmetic: $((1 + 2)).
        if self.depth == 0 || inner.starts_with('(') {
            return;
        }
        self.substitutions.push(Part::Open);
        self.substitutions.extend(split_within(inner, self.depth - 1).into_iter().map(|part| match part {
            Part::Run(command) if command.output == Output::Shown => {
                Part::Run(Command { output: Output::Kept, ..command })
            }
            other => other,
        }));
        self.substitutions.push(Part::Close);
    }

    /// Reads a redirection. `standard` says whether it is that of the standard input or output, if it has a number.
    fn redirect(&mut self, standard: Option<bool>) {
        let rest = self.rest;
        let standard = standard.unwrap_or(true);
        if let Some(text) = rest.strip_prefix("<<<") {
            self.rest = text;
            self.skip_blanks();
            self.raw_word();
        } else if let Some(text) = rest.strip_prefix("<<") {
            let tabs = text.starts_with('-');
            self.rest = text.strip_prefix('-').unwrap_or(text);
            self.skip_blanks();
            let end = self.raw_word();
            self.heredocs.push((unquote(&end), tabs));
        } else {
            let output = rest.starts_with('>');
            let text = rest.trim_start_matches(['<', '>', '|']);
            if let Some(descriptor) = text.strip_prefix('&') {
                self.rest = descriptor;
                self.raw_word();
                return;
            }
            self.rest = text;
            self.skip_blanks();
            let file = unquote(&self.raw_word());
            match (standard, output) {
                (false, _) => {}
                (true, true) => self.command.targets.push(file),
                (true, false) => self.command.sources.push(file),
            }
        }
    }

    /// Reads the heredocs that begin at this line.
    fn take_heredocs(&mut self) {
        for (end, tabs) in std::mem::take(&mut self.heredocs) {
            while !self.rest.is_empty() {
                let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
                self.rest = rest;
                if (if tabs { line.trim_start_matches('\t') } else { line }).trim_end_matches('\r') == end {
                    break;
                }
                self.command.heredoc.push_str(line);
                self.command.heredoc.push('\n');
            }
        }
    }

    fn end_command(&mut self, output: Output) {
        let raw = std::mem::take(&mut self.raw);
        let mut command = std::mem::take(&mut self.command);
        self.parts.append(&mut self.substitutions);
        command.words = shlex::split(&raw).unwrap_or_default();
        command.output = match output {
            Output::Shown if !command.targets.is_empty() => Output::Kept,
            output => output,
        };
        let continued = output == Output::Piped;
        if command.words.is_empty() && command.targets.is_empty() && command.sources.is_empty() {
            // A line may end after a pipe, and the lines of a heredoc come before the next command of the pipe.
            self.command.piped_from = continued || command.piped_from;
            self.command.is_alternative = command.is_alternative;
            return;
        }
        self.parts.push(Part::Run(command));
        self.command.piped_from = continued;
    }
}

fn unquote(word: &str) -> String {
    shlex::split(word).and_then(|words| words.into_iter().next()).unwrap_or_default()
}

/// Returns the length of the text before the parenthesis that ends a substitution.
fn substitution_length(text: &str) -> usize {
    /// The construct within which the scan is.
    #[derive(PartialEq)]
    enum In {
        Parentheses,
        Quotes,
    }
    let bytes = text.as_bytes();
    let mut stack = vec![In::Parentheses];
    let mut heredoc_end = None;
    let mut at = 0;
    while at < bytes.len() {
        let quoted = stack.last() == Some(&In::Quotes);
        match bytes[at] {
            b'\\' => at += 1,
            b'\'' if !quoted => at += 1 + text[at + 1..].find('\'').unwrap_or(text.len()),
            b'"' if quoted => {
                stack.pop();
            }
            b'"' => stack.push(In::Quotes),
            b'$' if quoted && bytes.get(at + 1) == Some(&b'(') => {
                at += 1;
                stack.push(In::Parentheses);
            }
            b'(' if !quoted => stack.push(In::Parentheses),
            b')' if !quoted => {
                stack.pop();
                if stack.is_empty() {
                    return at;
                }
            }
            b'<' if !quoted && text[at..].starts_with("<<<") => at += 2,
            b'<' if !quoted && text[at..].starts_with("<<") => {
                at += 1;
                let end = text[at + 1..].trim_start_matches(['-', ' ']);
                let length = end.find([' ', '\n', ';', '|', '&', ')', '<', '>']).unwrap_or(end.len());
                heredoc_end = Some(unquote(&end[..length]));
                at = text.len() - end.len() + length - 1;
            }
            b'\n' => {
                if let Some(end) = heredoc_end.take() {
                    let mut lines = text[at + 1..].split_inclusive('\n');
                    let skipped =
                        lines.by_ref().take_while(|line| line.trim() != end).map(str::len).sum::<usize>();
                    at += skipped + end.len();
                }
            }
            _ => {}
        }
        at += 1;
    }
    text.len()
}
