//! What the watcher shows: a live line on a terminal, a line now and then elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::agents::{Agent, Unknown};
use crate::searches::write::TranscriptCounts;

/// How often a line is written where there is no terminal.
const EVERY: Duration = Duration::from_secs(10);
/// How many different unknown kinds of lines are remembered, and how many of them are named.
const UNKNOWN: (usize, usize) = (100, 5);

/// What was sent so far, and what the watcher is doing.
pub(super) struct Progress {
    bar: ProgressBar,
    files: usize,
    bytes: u64,
    counts: TranscriptCounts,
    /// What the program was not written for, by agent, and in how many lines.
    unknown: BTreeMap<(&'static str, Unknown), usize>,
    /// Why the watcher waits, if it does.
    waiting: Option<String>,
    told: Option<Instant>,
    changed: bool,
}

impl Progress {
    pub(super) fn new(folders: &[PathBuf]) -> Self {
        let names: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        eprintln!("watching {}", names.join(" and "));
        let bar = if std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{spinner} {msg}").expect("a valid template");
            ProgressBar::new_spinner().with_style(style)
        } else {
            ProgressBar::hidden()
        };
        bar.enable_steady_tick(Duration::from_millis(250));
        Self {
            bar,
            files: 0,
            bytes: 0,
            counts: TranscriptCounts::default(),
            unknown: BTreeMap::new(),
            waiting: None,
            told: None,
            changed: false,
        }
    }

    /// Notes that so many transcripts are followed.
    pub(super) fn files(&mut self, files: usize) {
        self.files = files;
        self.show();
    }

    /// Notes that lines were taken.
    pub(super) fn taken(&mut self, counts: TranscriptCounts, bytes: usize) {
        self.counts.add(counts);
        self.bytes += bytes as u64;
        self.waiting = None;
        self.changed = true;
        self.show();
    }

    /// Notes what in lines that were taken the program was not written for.
    pub(super) fn unknown(&mut self, agent: &'static Agent, unknown: BTreeMap<Unknown, usize>) {
        for (what, lines) in unknown {
            let key = (agent.title, what);
            if self.unknown.len() < UNKNOWN.0 || self.unknown.contains_key(&key) {
                *self.unknown.entry(key).or_default() += lines;
            }
        }
    }

    /// Notes that the server cannot take lines.
    pub(super) fn waiting(&mut self, reason: &str) {
        if self.waiting.as_deref() != Some(reason) {
            self.bar.suspend(|| eprintln!("waiting: {reason}"));
        }
        self.waiting = Some(reason.to_owned());
        self.show();
    }

    /// Writes the last line, unless the one before it says the same.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
        if self.changed || self.told.is_none() {
            eprintln!("{self}");
        }
    }

    fn show(&mut self) {
        self.bar.set_message(self.to_string());
        if self.bar.is_hidden() && self.changed && self.told.is_none_or(|told| told.elapsed() > EVERY) {
            eprintln!("{self}");
            self.told = Some(Instant::now());
            self.changed = false;
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TranscriptCounts { lines, duplicates, bad_lines, tool_uses, human_turns, .. } = self.counts;
        let TranscriptCounts { searches_started, searches_resolved, associations_created, .. } = self.counts;
        let megabytes = self.bytes as f64 / 1e6;
        write!(
            f,
            "{} transcripts, {megabytes:.1} MB: {} new lines ({bad_lines} bad), {duplicates} known, {tool_uses} tool uses, \
             {human_turns} human turns, {searches_started} searches, {searches_resolved} resolved, \
             {associations_created} associations",
            self.files,
            lines - duplicates,
        )?;
        for (place, ((agent, what), lines)) in self.unknown.iter().take(UNKNOWN.1).enumerate() {
            f.write_str(if place == 0 { "; unknown: " } else { ", " })?;
            write!(f, "{what} of {agent} ({lines})")?;
        }
        if let Some(more) = self.unknown.len().checked_sub(UNKNOWN.1).filter(|more| *more > 0) {
            write!(f, " and {more} more")?;
        }
        if self.waiting.is_some() {
            f.write_str("; waiting for the server")?;
        }
        Ok(())
    }
}
