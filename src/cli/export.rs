//! `gleaner export`: data sets to a file or standard output.

use std::fs::{File, TryLockError};
use std::io::{IsTerminal as _, Read as _, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueEnum as _};
use flate2::Compression;
use flate2::write::GzEncoder;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use sqlx::PgPool;
use tokio::sync::mpsc;

use super::client::{Answer, Client};
use super::target::{Found, Missing, Target};
use super::{files, words};
use crate::exports::Dataset;
use crate::exports::datasets::{self, Entry};
use crate::exports::export::Export as Extent;
use crate::exports::format::Format;
use crate::exports::params::{COMMON, Common};
use crate::exports::places::Limits;
use crate::exports::reader::Turns;
use crate::exports::snapshots;
use crate::http::memory::Memory;
use crate::{db, projects};

/// The number of bytes of a server's response that are read at a time.
const CHUNK: usize = 64 << 10;

#[derive(Debug, Args)]
pub(super) struct Export {
    #[command(subcommand)]
    wanted: Wanted,
    /// The file to write. It is compressed if its name ends in .gz, and appears only when it is complete. The default
    /// is standard output.
    #[arg(long, short, global = true, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Make a snapshot: the export is stored in the database as a file of this kind, with a data set card. With
    /// --output, the file is downloaded when it is complete.
    #[arg(long, global = true, value_name = "KIND", num_args = 0..=1, default_missing_value = "parquet")]
    snapshot: Option<snapshots::File>,
    /// The licence in the snapshot's card.
    #[arg(long, global = true, value_name = "NAME", requires = "snapshot")]
    licence: Option<String>,
    /// The number of days after which the snapshot is deleted automatically.
    #[arg(long, global = true, value_name = "DAYS", requires = "snapshot")]
    keep_days: Option<u32>,
    /// The project to export. The default is the key's project, or `default` without a key.
    #[arg(long, global = true, value_name = "NAME")]
    project: Option<String>,
    #[command(flatten)]
    pub(super) target: Target,
}

/// The data set to export, with its parameters.
#[derive(Debug)]
struct Wanted {
    entry: &'static Entry,
    common: Common,
    dataset: Box<dyn Dataset>,
    /// The parameters as given, for a server: names and values of a query string.
    query: Vec<(String, String)>,
}

impl Subcommand for Wanted {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommands(datasets::ALL.iter().map(subcommand)).subcommand_required(true)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        datasets::ALL.iter().any(|entry| entry.description.name == name)
    }
}

/// Returns the command of a data set, which accepts only the formats of the data set.
fn subcommand(entry: &Entry) -> Command {
    let formats = entry.formats().filter_map(|format| format.to_possible_value());
    let formats = PossibleValuesParser::new(formats)
        .map(|name| Format::from_str(&name, false).expect("one of the names of formats"));
    let command = Common::augment_args(Command::new(entry.description.name));
    (entry.add_arguments)(command)
        .about(entry.description.summary.trim_end_matches('.'))
        .after_help(format!(
            "{}\n\nExample:\n  gleaner export {} --include metadata -o rows.jsonl",
            entry.documentation(),
            entry.description.name
        ))
        .mut_arg("format", |argument| argument.value_parser(formats))
}

impl FromArgMatches for Wanted {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = matches.subcommand().and_then(|(name, matches)| {
            let entry = datasets::ALL.iter().find(|entry| entry.description.name == name)?;
            Some((entry, matches))
        });
        let (entry, matches) = given.ok_or_else(|| clap::Error::new(ErrorKind::MissingSubcommand))?;
        let common = Common::from_arg_matches(matches)?;
        Ok(Self { entry, common, dataset: (entry.from_arguments)(matches)?, query: query(entry, matches) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the parameters of the command line as a server accepts them. They have the same names there.
fn query(entry: &Entry, matches: &ArgMatches) -> Vec<(String, String)> {
    let own = (entry.parameters)();
    let names = COMMON.into_iter().chain(own.iter().map(|parameter| parameter.name.as_str()));
    let given = names.filter(|name| {
        matches.ids().any(|id| id.as_str() == *name)
            && matches.value_source(name) == Some(ValueSource::CommandLine)
    });
    let values = |name: &str| {
        let values = matches.get_raw(name).into_iter().flatten().map(|value| value.to_string_lossy());
        values.collect::<Vec<_>>().join(",")
    };
    given.map(|name| (name.to_owned(), values(name))).collect()
}

impl Export {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let Self { wanted, output, snapshot, licence, keep_days, project, target } = self;
        let found = target.find(Missing::Say).await?;
        if let Some(file) = snapshot {
            let own = json!({"dataset": wanted.entry.description.name, "file": file, "licence": licence,
                "keep_days": keep_days});
            let parameters = wanted.query.into_iter().map(|(name, value)| (name, value.into()));
            let body = own.as_object().cloned().unwrap_or_default().into_iter().chain(parameters).collect();
            Box::pin(super::snapshots::keep(found, project, body, output)).await?;
            return Ok(ExitCode::SUCCESS);
        }
        match found {
            Found::Server(client) => {
                tokio::task::block_in_place(|| from_server(&client, project.as_deref(), &wanted, output))?;
            }
            Found::Database(local) => {
                let project = project.as_deref().unwrap_or("default");
                let db = db::pool(&local.options, db::EXPORT_NAME, 2);
                ensure!(
                    projects::store::exists(&db, project).await?,
                    "there is no project {project}; PUT /v1/projects/{project} creates it"
                );
                from_database(&db, project, wanted, output).await?;
                db.close().await;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn from_database(
    db: &PgPool,
    project: &str,
    wanted: Wanted,
    path: Option<PathBuf>,
) -> anyhow::Result<()> {
    let Wanted { entry, common, dataset, .. } = wanted;
    let export = Extent::prepare(db, project, &entry.description, dataset, common).await?;
    let (as_of, next_cursor) = (export.as_of(), export.next_cursor.clone());
    let (sender, mut chunks) = mpsc::channel(4);
    let patience = Limits::default().longest_page;
    let turns = Turns::alone(project);
    let producer = tokio::spawn(export.run(db.clone(), sender, turns, (), Memory::unbounded(), patience));
    let mut rows = Rows::open(path)?;
    loop {
        let chunk = chunks.recv().await.context("the export was interrupted; the log has the cause")?;
        if chunk.is_empty() {
            break;
        }
        rows.write(&chunk)?;
    }
    producer.await?;
    rows.finish(entry.description.name, &as_of.to_string(), next_cursor.as_deref())
}

fn from_server(
    client: &Client,
    project: Option<&str>,
    wanted: &Wanted,
    path: Option<PathBuf>,
) -> anyhow::Result<()> {
    let name = wanted.entry.description.name;
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(&wanted.query).finish();
    let address = format!("/v1/exports/{name}?{query}");
    let response = client.stream(&address, project).map_err(|error| client.unanswered(&error))?;
    if response.status() != 200 {
        let answer = Answer::read(response).map_err(|error| client.unanswered(&error))?;
        bail!("{}", client.refusal(&answer));
    }
    let header =
        |name: &str| response.headers().get(name).and_then(|value| Some(value.to_str().ok()?.to_owned()));
    let (as_of, next_cursor) = (header("gleaner-as-of"), header("gleaner-next-cursor"));
    let mut rows = Rows::open(path)?;
    let mut body = response.into_body().into_reader();
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = body
            .read(&mut chunk)
            .with_context(|| format!("the export from {} was interrupted", client.url()))?;
        if read == 0 {
            break;
        }
        rows.write(&chunk[..read])?;
    }
    rows.finish(name, &as_of.unwrap_or_default(), next_cursor.as_deref())
}

/// The rows that were written, and the progress that is shown.
struct Rows {
    out: Output,
    count: usize,
    progress: ProgressBar,
}

impl Rows {
    fn open(path: Option<PathBuf>) -> anyhow::Result<Self> {
        Ok(Self { out: Output::open(path)?, count: 0, progress: progress() })
    }

    fn write(&mut self, chunk: &[u8]) -> anyhow::Result<()> {
        self.out.write(chunk)?;
        self.count += chunk.iter().filter(|&&byte| byte == b'\n').count();
        self.progress.inc(chunk.len() as u64);
        self.progress.set_message(format!("{} rows", self.count));
        Ok(())
    }

    fn finish(self, name: &str, as_of: &str, next_cursor: Option<&str>) -> anyhow::Result<()> {
        self.out.finish()?;
        self.progress.finish_and_clear();
        let rows = if self.count == 1 { "row" } else { "rows" };
        words::note(format_args!("{} {rows} of {name} as of {as_of}", self.count));
        if let Some(cursor) = next_cursor {
            words::note(format_args!("there is more: --cursor {cursor}"));
        }
        Ok(())
    }
}

fn progress() -> ProgressBar {
    if !std::io::stderr().is_terminal() || std::io::stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "{spinner} {msg} {bytes} {binary_bytes_per_sec}";
    ProgressBar::new_spinner().with_style(ProgressStyle::with_template(template).expect("a valid template"))
}

/// The destination of the rows. A file is written under a temporary name and renamed when it is complete.
enum Output {
    Standard,
    Plain { file: std::io::BufWriter<File>, path: PathBuf },
    Zipped { file: GzEncoder<std::io::BufWriter<File>>, path: PathBuf },
}

/// Empties a file that no other command writes, or makes it.
fn own(part: &Path) -> anyhow::Result<File> {
    let file = File::options().create(true).write(true).truncate(false).open(part)?;
    // Some file systems have no locks.
    ensure!(!matches!(file.try_lock(), Err(TryLockError::WouldBlock)), "another command writes it");
    let is_there =
        part.metadata().is_ok_and(|there| there.ino() == file.metadata().map_or(0, |own| own.ino()));
    ensure!(is_there, "another command has just written it");
    file.set_len(0)?;
    Ok(file)
}

impl Output {
    fn open(path: Option<PathBuf>) -> anyhow::Result<Self> {
        let Some(path) = path else {
            return Ok(Self::Standard);
        };
        let path = files::destination(&path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        ensure!(folder.is_dir(), "cannot write {}: there is no folder {}", path.display(), folder.display());
        let part = part_of(&path);
        let file = own(&part).with_context(|| format!("cannot write {}", part.display()))?;
        let file = std::io::BufWriter::with_capacity(1 << 20, file);
        Ok(if path.extension().is_some_and(|extension| extension == "gz") {
            Self::Zipped { file: GzEncoder::new(file, Compression::default()), path }
        } else {
            Self::Plain { file, path }
        })
    }

    fn write(&mut self, chunk: &[u8]) -> anyhow::Result<()> {
        let (written, path) = match self {
            Self::Standard => return words::write_out(chunk),
            Self::Plain { file, path } => (file.write_all(chunk), path),
            Self::Zipped { file, path } => (file.write_all(chunk), path),
        };
        written.with_context(|| format!("writing {}", part_of(path).display()))
    }

    fn finish(self) -> anyhow::Result<()> {
        let (file, path) = match self {
            Self::Standard => return Ok(()),
            Self::Plain { file, path } => (file, path),
            Self::Zipped { file, path } => (file.finish()?, path),
        };
        // Nobody else may write to the file before it has its name.
        let file = file.into_inner()?;
        file.sync_all()?;
        std::fs::rename(part_of(&path), &path)
            .with_context(|| format!("moving {} into place", path.display()))
    }
}

fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}
