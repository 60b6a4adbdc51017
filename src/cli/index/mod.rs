//! `gleaner index` stores the functions and texts of a folder as memories, and keeps them up to date.
//!
//! A file is sent if the hash of its bytes differs from the last one that was sent, so that indexing an unchanged
//! folder takes little time. The memories of a file are replaced together, and unchanged pieces stay as they are.

mod chunks;
mod known;
mod language;

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use axum::http::{Method, Request, header};
use bytes::Bytes;
use clap::Args;
use futures_util::{StreamExt as _, stream};
use ignore::WalkBuilder;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::signal::unix::{SignalKind, signal};

use self::known::{Known, Seen};
use super::door::{Opened, open};
use super::target::{Missing, Target};
use super::{files, words};
use crate::mcp::Door;

/// The maximum size in bytes of a file that is indexed. Larger files are rarely written by people.
const LARGEST: u64 = 1 << 20;
/// The maximum length of a line in bytes in a file that is indexed. Files with longer lines are usually generated.
const LONGEST_LINE: usize = 5_000;
/// The number of bytes that are examined to recognize a text.
const HEAD: usize = 8 << 10;
/// The number of files that are sent at the same time.
const AT_ONCE: usize = 4;
/// The interval at which a watched folder is searched for changes.
const EVERY: Duration = Duration::from_secs(2);
/// The maximum number of pieces of a file.
const MOST_CHUNKS: usize = 5_000;

#[derive(Debug, Args)]
pub(super) struct Index {
    /// The folder. The default is the current one.
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// The project that gets the memories. The default is the key's project, or `default` without a key.
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// Keep running and index changes, until SIGINT or SIGTERM.
    #[arg(long)]
    watch: bool,
    /// Send every file again, even if it has not changed.
    #[arg(long)]
    from_start: bool,
    /// The folder with the record of what was sent. The default is ~/.local/state/gleaner.
    #[arg(long, env = "GLEANER_STATE_DIR", value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(super) target: Target,
}

/// The result of searching the folder once.
#[derive(Debug, Default, PartialEq, Eq)]
struct Done {
    files: usize,
    /// The number of files and folders that could not be read.
    unread: usize,
    sent: usize,
    gone: usize,
    added: u64,
    unchanged: u64,
    removed: u64,
}

/// The result of indexing one file.
enum Outcome {
    /// The file was sent.
    Sent(Counts),
    /// The file has not changed.
    Same,
    /// The file is not a text that is indexed.
    PassedOver,
    /// The file could not be read.
    Unread,
    /// The service refuses the file.
    Refused(anyhow::Error),
}

/// The refusal of a file for what it contains. Others may be accepted.
#[derive(Debug, thiserror::Error)]
#[error("{path} was rejected: {detail}")]
struct Refused {
    path: String,
    detail: String,
}

/// The numbers of pieces that have changed.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    added: u64,
    unchanged: u64,
    removed: u64,
}

impl Index {
    pub(super) async fn run(self) -> Result<ExitCode> {
        let root =
            fs::canonicalize(&self.folder).with_context(|| format!("opening {}", self.folder.display()))?;
        ensure!(root.is_dir(), "{} is not a folder", root.display());
        let root_name = root.to_str().context("the path of the folder is not UTF-8")?.to_owned();
        let opened = open(&self.target, Missing::Say, self.project.as_deref(), self.watch).await?;
        let done = self.index(&opened, &root, &root_name).await;
        opened.close().await;
        done.map(|()| ExitCode::SUCCESS)
    }

    async fn index(&self, opened: &Opened, root: &Path, root_name: &str) -> Result<()> {
        let mut known = Known::open(self.state_dir.as_deref(), &opened.name, root_name)?;
        if self.from_start {
            known.forget_hashes();
        }
        match look(&opened.door, root, root_name, &mut known, true).await {
            Ok(done) => words::note(say(&done)),
            Err(error) if self.watch && error.is::<Refused>() => words::note(words::describe(&error)),
            Err(error) => return Err(error),
        }
        if !self.watch {
            return Ok(());
        }
        words::note(format_args!("watching {root_name}"));
        let (mut end, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        loop {
            tokio::select! {
                _ = end.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
                () = tokio::time::sleep(EVERY) => {}
            }
            match look(&opened.door, root, root_name, &mut known, false).await {
                Ok(done) if done.sent + done.gone > 0 => words::note(say(&done)),
                Ok(_) => {}
                // It is sent again when it has changed.
                Err(error) if error.is::<Refused>() => words::note(words::describe(&error)),
                // The server will come back. What was not sent is sent then.
                Err(error) => words::note(format_args!("{}; trying again", words::describe(&error))),
            }
        }
    }
}

fn say(done: &Done) -> String {
    let Done { files, unread, sent, gone, added, unchanged, removed } = done;
    let unread = match unread {
        0 => String::new(),
        _ => format!(
            "; {unread} files and folders could not be read, so nothing of a missing file was removed"
        ),
    };
    format!(
        "{files} files: {sent} sent, {gone} gone; {added} pieces added, {unchanged} unchanged, {removed} removed{unread}"
    )
}

/// Searches the folder once, and sends what has changed.
async fn look(door: &Door, root: &Path, root_name: &str, known: &mut Known, shows: bool) -> Result<Done> {
    let (root, folder) = (root.to_owned(), root.to_owned());
    let (files, unread) = tokio::task::spawn_blocking(move || files(&folder)).await?;
    let bar = if shows && std::io::stderr().is_terminal() {
        ProgressBar::new(files.len() as u64)
    } else {
        ProgressBar::hidden()
    };
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} files, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut done = Done { files: files.len(), unread, ..Done::default() };
    let seen: BTreeSet<_> = files.iter().map(|(path, _)| path.clone()).collect();
    let changed: Vec<_> = files.into_iter().filter(|(path, seen)| !known.is_same(path, seen)).collect();
    bar.inc((done.files - changed.len()) as u64);
    let mut sending = stream::iter(changed.into_iter().map(|(path, seen)| {
        let (before, root) = (known.get(&path).map(|known| known.hash.clone()), &root);
        async move {
            let whole = root.join(&path);
            let read = tokio::task::spawn_blocking(move || read(&whole)).await?;
            let (text, hash) = match read {
                Ok(Some(read)) => read,
                Ok(None) => return anyhow::Ok((path, seen, String::new(), Outcome::PassedOver)),
                Err(_) => return Ok((path, seen, String::new(), Outcome::Unread)),
            };
            if before.is_some_and(|before| before == hash) {
                return Ok((path, seen, hash, Outcome::Same));
            }
            let (name, time) = (path.clone(), seen.modified);
            let body = tokio::task::spawn_blocking(move || body(&root_of(&name), &text, time)).await?;
            let outcome = match send(door, root_name, &path, body).await {
                Ok(counts) => Outcome::Sent(counts),
                Err(error) if error.is::<Refused>() => Outcome::Refused(error),
                Err(error) => return Err(error),
            };
            Ok((path, seen, hash, outcome))
        }
    }))
    .buffer_unordered(AT_ONCE);
    let mut finished = Vec::new();
    let (mut refused, mut failed) = (None, None);
    while let Some(outcome) = sending.next().await {
        bar.inc(1);
        match outcome {
            Ok(outcome) => finished.push(outcome),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    drop(sending);
    for (path, seen, hash, outcome) in finished {
        let was_sent = known.get(&path).is_some_and(known::File::is_sent);
        match outcome {
            Outcome::Sent(counts) => {
                done.sent += 1;
                done.count(counts);
            }
            // The file was a text before.
            Outcome::PassedOver if was_sent => {
                done.count(send(door, root_name, &path, json!([])).await?);
                done.gone += 1;
            }
            Outcome::Same | Outcome::PassedOver => {}
            // What is stored of it stays until it can be read again.
            Outcome::Unread => {
                done.unread += 1;
                continue;
            }
            Outcome::Refused(error) => {
                known.refuse(path, seen);
                refused = refused.or(Some(error));
                continue;
            }
        }
        known.set(path, seen, hash);
    }
    // What could not be read may contain the files that are missing.
    if failed.is_none() && done.unread == 0 {
        for path in known.not_in(&seen) {
            if known.get(&path).is_some_and(known::File::is_sent) {
                done.count(send(door, root_name, &path, json!([])).await?);
                done.gone += 1;
            }
            known.remove(&path);
        }
    }
    bar.finish_and_clear();
    known.save()?;
    match failed.or(refused) {
        Some(error) => Err(error),
        None => Ok(done),
    }
}

impl Done {
    fn count(&mut self, counts: Counts) {
        self.added += counts.added;
        self.unchanged += counts.unchanged;
        self.removed += counts.removed;
    }
}

/// Returns the files of a folder that are not ignored: their paths in the folder, and the properties that show
/// whether they have changed. Also returns how many files and folders could not be read.
fn files(root: &Path) -> (Vec<(String, Seen)>, usize) {
    let mut walk = WalkBuilder::new(root);
    walk.require_git(false).filter_entry(|entry| entry.file_name() != "node_modules");
    let (mut files, mut unread) = (Vec::new(), 0);
    for entry in walk.build() {
        let metadata = entry.and_then(|entry| Ok((entry.metadata()?, entry.into_path())));
        match metadata {
            Ok((metadata, path)) if metadata.is_file() && metadata.len() <= LARGEST => {
                files.extend(named(root, &path, &metadata));
            }
            Ok(_) => {}
            Err(error) => unread += usize::from(!error.io_error().is_some_and(is_gone)),
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    (files, unread)
}

/// Returns a file's path in the folder, and the properties that show whether it has changed.
fn named(root: &Path, path: &Path, metadata: &Metadata) -> Option<(String, Seen)> {
    let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
    let path = path.strip_prefix(root).ok()?.to_str()?.to_owned();
    Some((path, Seen { size: metadata.len(), modified }))
}

/// Returns whether an error says that there is no such file, which was there when its folder was read.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Reads a file. Returns it with its hash, or none if it is not a text that people may have written.
fn read(path: &Path) -> io::Result<Option<(String, String)>> {
    match fs::read(path) {
        Ok(bytes) => Ok(text(bytes)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns a text that people may have written, with its hash.
fn text(bytes: Vec<u8>) -> Option<(String, String)> {
    if bytes[..bytes.len().min(HEAD)].contains(&0)
        || bytes.split(|&byte| byte == b'\n').any(|line| line.len() > LONGEST_LINE)
    {
        return None;
    }
    let hash = files::hex(&Sha256::digest(&bytes));
    let text = String::from_utf8(bytes).ok()?;
    (!text.trim().is_empty()).then_some((text, hash))
}

fn root_of(path: &str) -> PathBuf {
    PathBuf::from(path)
}

/// Returns the pieces of a file in the form in which the service accepts them.
fn body(path: &Path, text: &str, modified: f64) -> Value {
    let chunks = chunks::chunks(path, text).into_iter().take(MOST_CHUNKS);
    chunks
        .map(|chunk| json!({"symbol": chunk.symbol, "content": chunk.content, "created_at": modified}))
        .collect()
}

/// Replaces the memories of a file.
async fn send(door: &Door, root: &str, path: &str, chunks: Value) -> Result<Counts> {
    let body = json!({"root": root, "path": path, "chunks": chunks}).to_string();
    let request = Request::builder()
        .method(Method::PUT)
        .uri("/v1/memories/code")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Bytes::from(body))?;
    let answer = door.pass(request).await?;
    if answer.status() == 204 {
        return Ok(Counts::default());
    }
    let body: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
    if !answer.status().is_success() {
        let status = answer.status();
        let detail = body["detail"].as_str().unwrap_or(status.as_str());
        if matches!(status.as_u16(), 400 | 413 | 422) {
            return Err(Refused { path: path.to_owned(), detail: detail.to_owned() }.into());
        }
        bail!("{path} was rejected: {detail}");
    }
    let count = |name: &str| body[name].as_u64().unwrap_or(0);
    Ok(Counts { added: count("added"), unchanged: count("unchanged"), removed: count("removed") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_told_from_what_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.txt");
        fs::write(&file, "A note.").expect("writes");
        let (found, unread) = files(folder.path());
        assert_eq!((found.len(), unread), (1, 0));
        assert!(read(&file).expect("it can be read").is_some());
        assert!(read(&folder.path().join("gone")).expect("it is gone").is_none());
        // A folder is no text, and a file no folder.
        read(folder.path()).expect_err("it cannot be read");
        assert_eq!(files(&file.join("b")), (Vec::new(), 1));
    }
}
