//! `gleaner export`: data sets to a file or standard output.

use std::io::{IsTerminal as _, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueEnum as _};
use flate2::Compression;
use flate2::write::GzEncoder;
use indicatif::{ProgressBar, ProgressStyle};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::mpsc;

use crate::exports::datasets::{self, Entry};
use crate::exports::format::Format;
use crate::exports::params::Common;
use crate::exports::{Dataset, stream};
use crate::{db, projects};

#[derive(Debug, Args)]
pub(super) struct Export {
    #[command(subcommand)]
    wanted: Wanted,
    /// File to write, compressed if it ends in .gz; standard output if not given. It appears only once it is whole.
    #[arg(long, short, global = true, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The project to export.
    #[arg(long, default_value = "default", global = true, value_name = "NAME")]
    project: String,
}

/// The data set that is asked for, with its parameters.
#[derive(Debug)]
struct Wanted {
    entry: &'static Entry,
    common: Common,
    dataset: Box<dyn Dataset>,
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

/// The command of a data set, which takes only the formats that the data set offers.
fn subcommand(entry: &Entry) -> Command {
    let formats = entry.formats().filter_map(|format| format.to_possible_value());
    let formats = PossibleValuesParser::new(formats)
        .map(|name| Format::from_str(&name, false).expect("one of the names of formats"));
    let command = Common::augment_args(Command::new(entry.description.name));
    (entry.add_arguments)(command)
        .about(entry.description.summary.trim_end_matches('.'))
        .long_about(format!("{}\n\n{}", entry.description.summary, entry.documentation()))
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
        Ok(Self { entry, common, dataset: (entry.from_arguments)(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Export {
    pub(super) async fn run(self, options: &PgConnectOptions) -> anyhow::Result<ExitCode> {
        let db = db::pool(options, db::EXPORT_NAME, 2);
        ensure!(projects::store::exists(&db, &self.project).await?, "there is no project {}", self.project);
        write(&db, &self.project, self.wanted, self.output).await?;
        db.close().await;
        Ok(ExitCode::SUCCESS)
    }
}

async fn write(db: &PgPool, project: &str, wanted: Wanted, path: Option<PathBuf>) -> anyhow::Result<()> {
    let Wanted { entry, common, dataset } = wanted;
    let export = stream::Export::prepare(db, project, &entry.description, dataset, common).await?;
    let (as_of, next_cursor) = (export.as_of(), export.next_cursor.clone());
    let (sender, mut chunks) = mpsc::channel(4);
    let producer = tokio::spawn(export.run(db.clone(), sender, ()));
    let progress = progress();
    let mut out = Output::open(path)?;
    let mut rows = 0;
    loop {
        let chunk = chunks.recv().await.context("the export broke off; the log has the cause")?;
        if chunk.is_empty() {
            break;
        }
        rows += chunk.iter().filter(|&&byte| byte == b'\n').count();
        out.write(&chunk)?;
        progress.inc(chunk.len() as u64);
        progress.set_message(format!("{rows} rows"));
    }
    producer.await?;
    out.finish()?;
    progress.finish_and_clear();
    eprintln!("{rows} rows of {} as of {as_of}", entry.description.name);
    if let Some(cursor) = next_cursor {
        eprintln!("there is more: --cursor {cursor}");
    }
    Ok(())
}

fn progress() -> ProgressBar {
    if !std::io::stderr().is_terminal() || std::io::stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "{spinner} {msg} {bytes} {binary_bytes_per_sec}";
    ProgressBar::new_spinner().with_style(ProgressStyle::with_template(template).expect("a valid template"))
}

/// Where rows go. A file is written under another name beside its own, and renamed when it is whole.
enum Output {
    Standard(std::io::Stdout),
    Plain { file: std::io::BufWriter<std::fs::File>, path: PathBuf },
    Zipped { file: GzEncoder<std::io::BufWriter<std::fs::File>>, path: PathBuf },
}

impl Output {
    fn open(path: Option<PathBuf>) -> anyhow::Result<Self> {
        let Some(path) = path else {
            return Ok(Self::Standard(std::io::stdout()));
        };
        let part = part_of(&path);
        let file = std::fs::File::create(&part).with_context(|| format!("creating {}", part.display()))?;
        let file = std::io::BufWriter::with_capacity(1 << 20, file);
        Ok(if path.extension().is_some_and(|extension| extension == "gz") {
            Self::Zipped { file: GzEncoder::new(file, Compression::default()), path }
        } else {
            Self::Plain { file, path }
        })
    }

    fn write(&mut self, chunk: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Standard(out) => out.write_all(chunk),
            Self::Plain { file, .. } => file.write_all(chunk),
            Self::Zipped { file, .. } => file.write_all(chunk),
        }
    }

    fn finish(self) -> anyhow::Result<()> {
        let (file, path) = match self {
            Self::Standard(mut out) => return Ok(out.flush()?),
            Self::Plain { file, path } => (file, path),
            Self::Zipped { file, path } => (file.finish()?, path),
        };
        file.into_inner()?.sync_all()?;
        std::fs::rename(part_of(&path), &path)
            .with_context(|| format!("moving {} into place", path.display()))
    }
}

fn part_of(path: &std::path::Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}
