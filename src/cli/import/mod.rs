//! `gleaner import`: stores events from files, by way of a server or through the same writer in a database.

mod lines;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::value::RawValue;

use self::lines::{Lines, NumberedLine};
use super::client::{Answer, Client};
use super::target::{Found, Local, Missing, Target};
use super::{defaults, words};
use crate::batch::{self, Rejected};
use crate::domain;
use crate::error::Result;
use crate::http::memory::Memory;
use crate::http::{clean_json, utf8};
use crate::projects::{self, Tenant};
use crate::server::{Running, Settings};
use crate::types::ids::LineIds;

/// How often a server that is busy is asked again.
const TRIES: u32 = 10;

#[derive(Debug, Args)]
pub(super) struct Import {
    /// NDJSON files of events, which may be compressed with gzip. An event may span several lines. A - stands for
    /// standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The project that the events belong to. The default is the key's project, or `default` without a key.
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    #[command(flatten)]
    pub(super) target: Target,
}

/// Where lines are stored.
enum Store {
    Server { client: Client, project: Option<String> },
    Database { running: Box<Running>, tenant: Arc<Tenant>, _local: Box<Local> },
}

impl Import {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let store = match self.target.find(Missing::Make).await? {
            Found::Server(client) => Store::Server { client, project: self.project.clone() },
            Found::Database(local) => Store::database(local, self.project.as_deref()).await?,
        };
        let mut total = Totals::default();
        let mut ids = LineIds::default();
        for file in &self.files {
            let name =
                if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() };
            let mut lines = Lines::open(file).with_context(|| format!("opening {name}"))?;
            let progress = Progress::new(&name, lines.size);
            loop {
                let chunk = lines.chunk().with_context(|| format!("reading {name}"))?;
                if chunk.is_empty() {
                    break;
                }
                progress.advance(&chunk);
                let (summary, replaced) = store.take(chunk, &mut ids).await?;
                let lost = summary.rejected.iter().find(|rejected| rejected.status == 503);
                if let Some(Rejected { line, detail, .. }) = lost {
                    // Every line has an id or names the record it refers to, so importing it again is
                    // harmless.
                    bail!("{name}, line {line}: {detail}. Import the file again to store what is missing");
                }
                total.replaced += replaced;
                total.add(&name, summary);
            }
            progress.finish();
        }
        store.close().await;
        total.print()?;
        Ok(if total.rejected == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Store {
    async fn database(local: Box<Local>, project: Option<&str>) -> anyhow::Result<Self> {
        let project = project.unwrap_or("default");
        let settings =
            Settings { connections: 2, defaults: defaults()?, upkeep: false, ..Settings::default() };
        let running = Box::new(Running::start(&local.options, settings));
        let exists = projects::store::exists(&running.app.db, project).await?;
        ensure!(exists, "there is no project {project}; PUT /v1/projects/{project} creates it");
        let tenant = running.app.keyring.tenant(project).await?;
        Ok(Self::Database { running, tenant, _local: local })
    }

    /// Stores lines. Returns their outcome, and how many characters had to be replaced.
    async fn take(
        &self,
        chunk: Vec<NumberedLine>,
        ids: &mut LineIds,
    ) -> anyhow::Result<(batch::Summary, usize)> {
        match self {
            Self::Server { client, project } => {
                tokio::task::block_in_place(|| post(client, project.as_deref(), &chunk, ids))
            }
            Self::Database { running, tenant, .. } => {
                let mut replaced = 0;
                let events = chunk.into_iter().map(|(number, mut line)| {
                    let id = ids.next(&line);
                    let event: Result<_> = (|| {
                        replaced += clean_json(&mut line)?;
                        domain::read(&tenant.name, utf8(&line)?, Some(id))
                    })();
                    batch::Line::new(number, &line, event)
                });
                let events = events.collect();
                let written = batch::write(&running.app.writer, tenant, events, &Memory::unbounded()).await;
                Ok((written?.0, replaced))
            }
        }
    }

    async fn close(self) {
        if let Self::Database { running, .. } = self {
            running.finish().await;
        }
    }
}

/// Posts lines to a server, again and again while that is busy.
fn post(
    client: &Client,
    project: Option<&str>,
    chunk: &[NumberedLine],
    ids: &mut LineIds,
) -> anyhow::Result<(batch::Summary, usize)> {
    let mut body = Vec::with_capacity(chunk.iter().map(|(_, line)| line.len() + 64).sum());
    for (_, line) in chunk {
        push_named(&mut body, line, ids)?;
    }
    let mut tries = 0;
    let answer = loop {
        let answer = client.post("/v1/events", "application/x-ndjson", project, &body);
        match &answer {
            Ok(Answer { status: 503, retry_after, .. }) if tries < TRIES => {
                tries += 1;
                std::thread::sleep(Duration::from_secs(retry_after.unwrap_or(1).min(30)));
            }
            _ => break client.accepted(answer)?,
        }
    };
    let mut summary: batch::Summary = client.json(&answer)?;
    for rejected in &mut summary.rejected {
        // The server numbers the lines of this request.
        rejected.line = chunk.get(rejected.line - 1).map_or(rejected.line, |(number, _)| *number);
    }
    Ok((summary, answer.replaced))
}

/// Adds a line with a `line_id`, by which the server knows it again, unless it has one. Null stands for none.
fn push_named(body: &mut Vec<u8>, line: &[u8], ids: &mut LineIds) -> anyhow::Result<()> {
    let id = ids.next(line);
    // The server says why a line cannot be read.
    let mut members: BTreeMap<String, &RawValue> = serde_json::from_slice(line).unwrap_or_default();
    let rest = match members.remove("line_id").map(RawValue::get) {
        None => line.to_vec(),
        Some("null") => serde_json::to_vec(&members)?,
        Some(_) => Vec::new(),
    };
    match rest.strip_prefix(b"{") {
        Some(rest) => {
            let comma = if rest.trim_ascii_start().starts_with(b"}") { "" } else { "," };
            body.extend_from_slice(format!("{{\"line_id\":\"{id}\"{comma}").as_bytes());
            push_on_one_line(body, rest);
        }
        None => push_on_one_line(body, line),
    }
    body.push(b'\n');
    Ok(())
}

/// Adds a record on one line. Where JSON may have a newline, a space says the same.
fn push_on_one_line(body: &mut Vec<u8>, record: &[u8]) {
    body.extend(record.iter().map(|&byte| if byte == b'\n' { b' ' } else { byte }));
}

/// Shows progress as a bar on a terminal, and as occasional lines elsewhere.
struct Progress {
    bar: ProgressBar,
    name: String,
    lines: std::cell::Cell<usize>,
    started: Instant,
    told: std::cell::Cell<Instant>,
}

impl Progress {
    fn new(name: &str, size: Option<u64>) -> Self {
        let bar = match (std::io::stderr().is_terminal(), size) {
            (false, _) => ProgressBar::hidden(),
            (true, Some(size)) => ProgressBar::new(size).with_style(
                ProgressStyle::with_template(
                    "{msg} {wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}",
                )
                .expect("a valid template"),
            ),
            (true, None) => ProgressBar::new_spinner().with_style(
                ProgressStyle::with_template("{msg} {spinner} {bytes} {binary_bytes_per_sec}")
                    .expect("a valid template"),
            ),
        };
        let now = Instant::now();
        bar.set_message(name.to_owned());
        Self { bar, name: name.to_owned(), lines: 0.into(), started: now, told: now.into() }
    }

    fn advance(&self, chunk: &[NumberedLine]) {
        self.lines.set(self.lines.get() + chunk.len());
        self.bar.inc(chunk.iter().map(|(_, line)| line.len() as u64 + 1).sum());
        if self.bar.is_hidden() && self.told.get().elapsed() > Duration::from_secs(5) {
            self.told.set(Instant::now());
            self.tell();
        }
    }

    fn tell(&self) {
        let rate = self.lines.get() as f64 / self.started.elapsed().as_secs_f64().max(1e-3);
        words::note(format_args!("{}: {} lines, {rate:.0} lines/s", self.name, self.lines.get()));
    }

    fn finish(self) {
        self.bar.finish_and_clear();
        self.tell();
    }
}

#[derive(Default)]
struct Totals {
    accepted: usize,
    duplicates: usize,
    skipped: usize,
    rejected: usize,
    replaced: usize,
    /// How often each reason was given, and where first.
    reasons: BTreeMap<String, (usize, String)>,
}

impl Totals {
    fn add(&mut self, file: &str, summary: batch::Summary) {
        self.accepted += summary.accepted;
        self.duplicates += summary.duplicates;
        self.skipped += summary.skipped;
        self.rejected += summary.rejected.len();
        for Rejected { line, detail, .. } in summary.rejected {
            self.reasons.entry(detail).or_insert_with(|| (0, format!("{file}, line {line}"))).0 += 1;
        }
    }

    fn print(&self) -> anyhow::Result<()> {
        words::print(format_args!(
            "accepted {}, duplicates {}, rejected {}",
            self.accepted, self.duplicates, self.rejected
        ))?;
        if self.skipped > 0 {
            words::print(format_args!(
                "skipped {}: the project's capture setting stores nothing of them",
                self.skipped
            ))?;
        }
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
        for (reason, (count, first)) in reasons.iter().take(50) {
            words::print(format_args!("  {count} x {reason} (first: {first})"))?;
        }
        if reasons.len() > 50 {
            words::print(format_args!("  and {} other reasons", reasons.len() - 50))?;
        }
        if self.replaced > 0 {
            words::print(format_args!(
                "{} characters that Postgres cannot store were replaced with U+FFFD",
                self.replaced
            ))?;
        }
        Ok(())
    }
}
