//! `gleaner import`: stores events from files, by way of a server or through the same writer in a database.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use flate2::read::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};

use super::client::{Answer, Client};
use super::target::{Found, Local, Missing, Target};
use super::{defaults, words};
use crate::batch::{self, Rejected};
use crate::domain;
use crate::error::Result;
use crate::http::memory::Memory;
use crate::http::{NDJSON_LIMIT, clean_json, utf8};
use crate::projects::{self, Tenant};
use crate::server::{Running, Settings};
use crate::types::ids::LineIds;

/// How many lines are handed to the writer at a time.
const LINES: usize = 2_000;
/// How many bytes of lines are held at a time, even if that is fewer lines.
const BYTES: usize = 8 << 20;
/// How often a server that is busy is asked again.
const TRIES: u32 = 10;

#[derive(Debug, Args)]
pub(super) struct Import {
    /// NDJSON files of events, possibly compressed with gzip. An event may also be laid out over several lines. A - is
    /// standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The project that the events belong to; that of --key, if not given, or default.
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    #[command(flatten)]
    pub(super) target: Target,
}

/// A line of a file: its number and its text.
type NumberedLine = (usize, Vec<u8>);

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
                    bail!("{name}, line {line}: {detail}. Importing it again does what is missing");
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
        let settings = Settings { connections: 2, defaults: defaults()?, ..Settings::default() };
        let running = Box::new(Running::start(&local.options, settings));
        let exists = projects::store::exists(&running.app.db, project).await?;
        ensure!(exists, "there is no project {project}; PUT /v1/projects/{project} makes it");
        let tenant = running.app.keyring.tenant(project).await?;
        Ok(Self::Database { running, tenant, _local: local })
    }

    /// Stores lines. Returns what became of them, and how many characters had to be replaced.
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
                    (number, event)
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
        push_named(&mut body, line, ids);
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

/// Adds a line with a `line_id`, by which the server knows it again, unless it has one.
fn push_named(body: &mut Vec<u8>, line: &[u8], ids: &mut LineIds) {
    let id = ids.next(line);
    match line.strip_prefix(b"{") {
        Some(members) if memchr::memmem::find(line, b"\"line_id\"").is_none() => {
            let comma = if members.trim_ascii_start().starts_with(b"}") { "" } else { "," };
            body.extend_from_slice(format!("{{\"line_id\":\"{id}\"{comma}").as_bytes());
            push_on_one_line(body, members);
        }
        _ => push_on_one_line(body, line),
    }
    body.push(b'\n');
}

/// Adds a record on one line. Where JSON may have a newline, a space says the same.
fn push_on_one_line(body: &mut Vec<u8>, record: &[u8]) {
    body.extend(record.iter().map(|&byte| if byte == b'\n' { b' ' } else { byte }));
}

/// The records of a file, each with the number of the line that it begins on. A record is a line that is not blank, or an
/// object that is laid out over several lines, as `jq` and other printers do it.
struct Lines {
    reader: Box<dyn BufRead + Send>,
    number: usize,
    /// A line that was read and turned out not to belong to the record before it.
    ahead: Option<Vec<u8>>,
    /// The file's size in bytes, if it tells how much there is to read.
    size: Option<u64>,
}

impl Lines {
    fn open(file: &Path) -> std::io::Result<Self> {
        let (input, size): (Box<dyn Read + Send>, _) = if file == Path::new("-") {
            (Box::new(std::io::stdin()), None)
        } else {
            let file = File::open(file)?;
            let size = file.metadata()?.len();
            (Box::new(file), Some(size))
        };
        let mut input = BufReader::with_capacity(1 << 20, input);
        if input.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
            let reader = BufReader::with_capacity(1 << 20, MultiGzDecoder::new(input));
            return Ok(Self::new(Box::new(reader), None));
        }
        Ok(Self::new(Box::new(input), size))
    }

    fn new(reader: Box<dyn BufRead + Send>, size: Option<u64>) -> Self {
        Self { reader, number: 0, ahead: None, size }
    }

    /// Returns the next records, or none at the end of the file.
    fn chunk(&mut self) -> std::io::Result<Vec<NumberedLine>> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        while records.len() < LINES && bytes < BYTES {
            let Some(line) = self.line()? else { break };
            let number = self.number;
            bytes += line.len();
            let text = line.trim_ascii();
            if text == b"{" {
                let record = self.rest_of_object(line)?;
                bytes += record.len();
                records.push((number, record.trim_ascii().to_vec()));
            } else if !text.is_empty() {
                records.push((number, text.to_vec()));
            }
        }
        Ok(records)
    }

    /// Returns the next line with its line break, or none at the end of the file.
    fn line(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let mut line = self.ahead.take().unwrap_or_default();
        if line.is_empty()
            && self.reader.by_ref().take(NDJSON_LIMIT as u64).read_until(b'\n', &mut line)? == 0
        {
            return Ok(None);
        }
        self.number += 1;
        if line.len() == NDJSON_LIMIT && !line.ends_with(b"\n") {
            return Err(too_long(self.number));
        }
        Ok(Some(line))
    }

    /// Returns the whole text of an object whose first line holds only its brace. It ends where that brace is closed. A line
    /// that begins with a brace while no other is open cannot belong to it, because members have names: it begins the next
    /// record, so that a stray brace costs no other record.
    fn rest_of_object(&mut self, mut text: Vec<u8>) -> std::io::Result<Vec<u8>> {
        let (first, mut open) = (self.number, 1);
        while open > 0 {
            let Some(line) = self.line()? else { break };
            if open == 1 && line.trim_ascii_start().starts_with(b"{") {
                self.number -= 1;
                self.ahead = Some(line);
                break;
            }
            open += levels(&line);
            text.extend(line);
            if text.len() > NDJSON_LIMIT {
                return Err(too_long(first));
            }
        }
        Ok(text)
    }
}

fn too_long(number: usize) -> std::io::Error {
    std::io::Error::other(format!("the record on line {number} has more than {NDJSON_LIMIT} bytes"))
}

/// Returns how many more brackets and braces a line of JSON opens than it closes. No text of JSON goes over several lines.
fn levels(line: &[u8]) -> i64 {
    let (mut levels, mut in_text, mut escaped) = (0, false, false);
    for byte in line {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => levels += 1,
            b'}' | b']' if !in_text => levels -= 1,
            _ => {}
        }
    }
    levels
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
            words::print(format_args!("skipped {}: the project keeps nothing of these", self.skipped))?;
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
                "{} characters that Postgres cannot keep were replaced by U+FFFD",
                self.replaced
            ))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn records(text: &str) -> Vec<(usize, String)> {
        let mut lines = Lines::new(Box::new(Cursor::new(text.to_owned())), None);
        let records = lines.chunk().expect("reads").into_iter();
        records.map(|(number, record)| (number, String::from_utf8(record).expect("text"))).collect()
    }

    #[test]
    fn a_stray_brace_is_a_record_of_its_own_and_costs_no_other() {
        let text = "{\"a\": 1}\n{\n{\"b\": 2}\n\n{\n  \"c\": 3\n}\n{\n{\n}\n{\n";
        let expected = [
            (1, "{\"a\": 1}"),
            (2, "{"),
            (3, "{\"b\": 2}"),
            (5, "{\n  \"c\": 3\n}"),
            (8, "{"),
            (9, "{\n}"),
            (11, "{"),
        ];
        assert_eq!(records(text), expected.map(|(number, record)| (number, record.to_owned())));
    }

    proptest! {
        #[test]
        fn an_object_on_several_lines_is_the_same_record_as_on_one(
            objects in proptest::collection::vec((object(), any::<bool>(), any::<bool>()), 0..6),
        ) {
            let mut text = String::new();
            let mut expected = Vec::new();
            for (object, laid_out, blank) in objects {
                let number = text.matches('\n').count() + 1;
                let record = if laid_out { format!("{object:#}") } else { object.to_string() };
                text.push_str(&record.replace('\n', "\r\n"));
                text.push_str(if blank { "\n\n" } else { "\n" });
                expected.push((number, object));
            }
            let read = records(&text).into_iter();
            let read: Vec<(usize, Value)> = read.map(|(number, record)| (number, record.parse().expect("JSON"))).collect();
            prop_assert_eq!(read, expected);
        }
    }

    /// Objects whose texts hold what could be taken for their structure.
    fn object() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            Just(json!([])),
            "[{}\\[\\]\"\\\\\n,: a]{0,8}".prop_map(Value::from)
        ];
        let value = leaf.prop_recursive(3, 12, 3, |inner| {
            let pairs = proptest::collection::hash_map("[{}\"\\\\ a]{0,3}", inner.clone(), 0..3);
            prop_oneof![
                proptest::collection::vec(inner, 0..3).prop_map(Value::from),
                pairs.prop_map(|pairs| pairs.into_iter().collect()),
            ]
        });
        proptest::collection::hash_map("[{}\"\\\\ a]{0,3}", value, 0..4)
            .prop_map(|pairs| pairs.into_iter().collect())
    }
}
