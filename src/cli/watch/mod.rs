//! `gleaner watch`: transcripts followed while agents write them.
//!
//! The watcher polls: once a second it looks through the folders and compares the size of every transcript with how much
//! of it was sent. That takes a few milliseconds for thousands of files, misses nothing, works on every file system, and has
//! to be done after a restart anyway; notifications of the system would be a second way to know the same. What is sent is
//! whole lines, in order. How far each file was sent is written down after the server has taken the lines, so a crash makes
//! some lines be sent again and none be left out; the server knows lines that it has.
//!
//! A file is known by device, number and a hash of what was sent of it (`mark.rs`), so that one that was cut or written anew
//! is sent from its beginning, and one that was renamed goes on under its first name, which is its `source`. A last line
//! without a newline is sent once it is a whole object, since nothing can follow in it.

mod destination;
mod lines;
mod mark;
mod positions;
mod progress;
mod scan;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use self::destination::{Destination, Refusal};
use self::positions::Positions;
use self::progress::Progress;
use super::target::{Found, Missing, Target};
use super::{defaults, files};
use crate::agents::{self, Agent, Unknown};
use crate::searches::transcripts::Origin;
use crate::searches::write::TranscriptCounts;

/// The first and the longest pause before a server that is away is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));
/// How long an answer is waited for when it is time to stop.
const GRACE: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(super) struct Watch {
    /// The folders of transcripts. The default is the folders of all agents that Gleaner supports.
    #[arg(value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// The project that the transcripts belong to. The default is the key's project, or `default` without a key.
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// Learn from the transcripts. This is the default.
    #[arg(long, overrides_with = "no_learn")]
    learn: bool,
    /// Only count what is in the transcripts, and learn nothing from them. A later run without this option still
    /// learns from the same lines.
    #[arg(long, overrides_with = "learn")]
    no_learn: bool,
    /// Send what the transcripts contain now, and exit.
    #[arg(long)]
    once: bool,
    /// Send all transcripts again from the beginning. Lines that were sent before are not counted twice.
    #[arg(long)]
    from_start: bool,
    /// The number of seconds between two checks for new lines.
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = seconds)]
    every: f64,
    /// The folder that records how far each transcript was sent. The default is ~/.local/state/gleaner.
    #[arg(long, env = "GLEANER_STATE_DIR", value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(super) target: Target,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.01..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("must be from 0.01 to 3600".to_owned()) }
}

impl Watch {
    pub(super) async fn run(self) -> Result<ExitCode> {
        match self.target.find(Missing::Say).await? {
            Found::Server(client) => {
                let destination = Destination::Server { client, project: self.project.clone() };
                self.follow(destination).await
            }
            Found::Database(local) => {
                let project = self.project.as_deref();
                let mut defaults = defaults()?;
                if self.learn {
                    defaults.searches.learn = Some(true);
                }
                let destination =
                    Destination::database(&local.options, project, defaults, !self.once).await?;
                self.follow(destination).await
            }
        }
    }

    async fn follow(self, destination: Destination) -> Result<ExitCode> {
        let folders = self.folders()?;
        // What is only counted is not used up for those who learn.
        let name = format!("{}{}", destination.name(), if self.no_learn { ", counted" } else { "" });
        let positions = Positions::open(&self.state_dir()?, &name, self.from_start)?;
        let (stop, stopped) = watch::channel(false);
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            let _ = stop.send(true);
        });
        let mut follower = Follower {
            destination,
            positions,
            progress: Progress::new(&folders),
            learn: !self.no_learn,
            seen: HashMap::new(),
            unnamed: HashSet::new(),
            stopped,
        };
        let every = Duration::from_secs_f64(self.every);
        loop {
            follower.round(&folders).await?;
            if self.once || follower.pause(every).await {
                break;
            }
        }
        follower.positions.save()?;
        follower.progress.finish();
        follower.destination.close().await;
        Ok(ExitCode::SUCCESS)
    }

    fn folders(&self) -> Result<Vec<PathBuf>> {
        if self.folders.is_empty() {
            let folder = |agent: &Agent| {
                let home = files::home(agent.home.variable, agent.home.folder)?;
                let folder = home.join(agent.transcripts.folder);
                // It may come into being later.
                Ok(folder.canonicalize().unwrap_or(folder))
            };
            return agents::ALL.into_iter().map(folder).collect();
        }
        let absolute = |folder: &PathBuf| {
            folder.canonicalize().with_context(|| format!("opening the folder {}", folder.display()))
        };
        self.folders.iter().map(absolute).collect()
    }

    fn state_dir(&self) -> Result<PathBuf> {
        match &self.state_dir {
            Some(folder) if !folder.as_os_str().is_empty() => Ok(folder.clone()),
            _ => Ok(files::home("XDG_STATE_HOME", ".local/state")?.join("gleaner")),
        }
    }
}

/// What a file looked like: if it still does, there is nothing new in it.
#[derive(PartialEq)]
struct Seen {
    size: u64,
    inode: u64,
    modified: Option<SystemTime>,
}

impl Seen {
    fn of(metadata: &fs::Metadata) -> Self {
        Self { size: metadata.len(), inode: metadata.ino(), modified: metadata.modified().ok() }
    }
}

/// The follower of transcripts.
struct Follower {
    destination: Destination,
    positions: Positions,
    progress: Progress,
    learn: bool,
    /// Files as they were when they were read to the end.
    seen: HashMap<PathBuf, Seen>,
    /// Transcripts that were reported as skipped because of their names.
    unnamed: HashSet<PathBuf>,
    stopped: watch::Receiver<bool>,
}

impl Follower {
    /// Waits; returns whether it is time to stop.
    async fn pause(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.stopped.wait_for(|stopped| *stopped)).await.is_ok()
    }

    /// Sends what is new in all transcripts.
    async fn round(&mut self, folders: &[PathBuf]) -> Result<()> {
        let found = scan::scan(folders);
        for path in &found.unnamed {
            if self.unnamed.insert(path.clone()) {
                tracing::warn!(path = %path.display(), "a transcript was skipped because its name is not UTF-8");
            }
        }
        self.positions.renamed(&found);
        let mut transcripts = found.transcripts.clone();
        transcripts.extend(self.positions.elsewhere(&found));
        self.progress.files(transcripts.len());
        for path in &transcripts {
            if *self.stopped.borrow() {
                break;
            }
            match self.file(path).await {
                Ok(()) => {}
                // A file may vanish or be closed to us at any time; the others go on.
                Err(Trouble::File(error)) if error.kind() == io::ErrorKind::NotFound => {}
                Err(Trouble::File(error)) => {
                    tracing::warn!(path = %path.display(), %error, "a transcript could not be read or sent");
                    // It is tried and reported again once it has changed.
                    self.seen.extend(fs::metadata(path).map(|metadata| (path.clone(), Seen::of(&metadata))));
                }
                Err(Trouble::All(error)) => return Err(error),
            }
        }
        self.seen.retain(|path, _| transcripts.contains(path));
        self.positions.forget(&found, folders);
        self.positions.save_soon()
    }

    /// Sends what is new in a transcript.
    async fn file(&mut self, path: &Path) -> Result<(), Trouble> {
        let metadata = fs::metadata(path)?;
        let now = Seen::of(&metadata);
        if self.seen.get(path) == Some(&now) {
            return Ok(());
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let (source, mut lines) = self.positions.unsent(path, file, &metadata)?;
        let Some(agent) = agents::of_transcript(path) else { return Ok(()) };
        let origin = Origin { agent, source, learn: (!self.learn).then_some(false) };
        while let Some(piece) = lines.next()? {
            if !piece.trim_ascii().is_empty() {
                let unknown = unknown_in(agent, &piece);
                if !self.send(&origin, piece).await? {
                    return Ok(());
                }
                self.progress.unknown(agent, unknown);
            }
            self.positions.advance(path, &lines);
            self.positions.save_soon()?;
        }
        let too_long = usize::try_from(lines.take_too_long()).unwrap_or(usize::MAX);
        if too_long > 0 {
            tracing::warn!(path = %path.display(), lines = too_long, "lines were skipped because they are longer than a server accepts");
            let counts =
                TranscriptCounts { lines: too_long, bad_lines: too_long, ..TranscriptCounts::default() };
            self.progress.taken(counts, 0);
            self.positions.advance(path, &lines);
        }
        self.seen.insert(path.to_owned(), now);
        Ok(())
    }

    /// Sends lines until they are taken; returns false if it is time to stop before that.
    async fn send(&mut self, origin: &Origin, lines: Vec<u8>) -> Result<bool, Trouble> {
        let lines = bytes::Bytes::from(lines);
        let mut pause = PAUSES.0;
        loop {
            let sent = self.destination.send(origin, lines.clone());
            let sent = tokio::select! {
                sent = sent => sent,
                () = stopped_since(self.stopped.clone(), GRACE) => return Ok(false),
            };
            match sent {
                Ok(counts) => {
                    self.progress.taken(counts, lines.len());
                    return Ok(true);
                }
                Err(Refusal::Final(error)) => {
                    return Err(Trouble::All(error.context(format!("sending {}", origin.source))));
                }
                Err(Refusal::Failed(reason)) => return Err(Trouble::File(io::Error::other(reason))),
                Err(Refusal::Away { reason, after }) => {
                    self.progress.waiting(&reason);
                    if self.pause(after.unwrap_or(pause).min(PAUSES.1)).await {
                        return Ok(false);
                    }
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }
}

/// The kinds of lines and versions of agents in these lines that the program does not know, each with its number of
/// lines. The receiver counts malformed lines.
fn unknown_in(agent: &Agent, lines: &[u8]) -> BTreeMap<Unknown, usize> {
    let mut unknown = BTreeMap::new();
    for line in lines.split(|&byte| byte == b'\n').filter_map(|line| str::from_utf8(line).ok()) {
        for what in agent.known.unknown_in((agent.kind_of_line)(line)) {
            *unknown.entry(what).or_default() += 1;
        }
    }
    unknown
}

/// Waits until `time` after it was told to stop.
async fn stopped_since(mut stopped: watch::Receiver<bool>, time: Duration) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
    tokio::time::sleep(time).await;
}

/// Why a transcript cannot be sent.
enum Trouble {
    /// The file cannot be read.
    File(io::Error),
    /// Nothing at all can be sent.
    All(anyhow::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Self {
        Self::All(error)
    }
}
