//! `gleaner export`: data sets to a file or standard output.

use std::io::{IsTerminal as _, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use flate2::Compression;
use flate2::write::GzEncoder;
use indicatif::{ProgressBar, ProgressStyle};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::mpsc;

use crate::exports::params::Common;
use crate::exports::{
    AcceptedSuggestions, CorrectionPairs, PreferencePairs, Rankings, Records, SearchPairs, SuggestionHistory,
    TrainingPairs, stream,
};
use crate::{db, projects};

#[derive(Debug, Args)]
pub(super) struct Export {
    #[command(subcommand)]
    dataset: Dataset,
    /// File to write, compressed if it ends in .gz; standard output if not given. It appears only once it is whole.
    #[arg(long, short, global = true, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The project to export.
    #[arg(long, default_value = "default", global = true, value_name = "NAME")]
    project: String,
}

#[derive(Debug, Subcommand)]
enum Dataset {
    /// Intent and program of every log that succeeded.
    TrainingPairs {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        own: TrainingPairs,
    },
    /// Failed attempts with their errors, and the programs that fixed them.
    CorrectionPairs {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        own: CorrectionPairs,
    },
    /// What users chose over suggestions that they had seen and passed over.
    PreferencePairs {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        own: PreferencePairs,
    },
    /// What the model was told, and the suggestion that was accepted.
    AcceptedSuggestions {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        own: AcceptedSuggestions,
    },
    /// Slates with graded labels.
    Rankings {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        own: Rankings,
    },
    /// Finalized records as lines of the seed's history file.
    SuggestionHistory {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        own: SuggestionHistory,
    },
    /// Queries that came back weak, the files that answered them, and the files that did not help.
    SearchPairs {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        own: SearchPairs,
    },
}

impl Export {
    pub(super) async fn run(self, options: &PgConnectOptions) -> anyhow::Result<ExitCode> {
        let db = db::pool(options, db::EXPORT_NAME, 2);
        ensure!(projects::store::exists(&db, &self.project).await?, "there is no project {}", self.project);
        let to = (self.project.as_str(), self.output);
        match self.dataset {
            Dataset::TrainingPairs { common, own } => write(&db, own, common, to).await?,
            Dataset::CorrectionPairs { common, own } => write(&db, own, common, to).await?,
            Dataset::PreferencePairs { common, own } => write(&db, own, common, to).await?,
            Dataset::AcceptedSuggestions { common, own } => write(&db, own, common, to).await?,
            Dataset::Rankings { common, own } => write(&db, own, common, to).await?,
            Dataset::SuggestionHistory { common, own } => write(&db, own, common, to).await?,
            Dataset::SearchPairs { common, own } => write(&db, own, common, to).await?,
        }
        db.close().await;
        Ok(ExitCode::SUCCESS)
    }
}

async fn write<R: Records>(
    db: &PgPool,
    own: R,
    common: Common,
    (project, place): (&str, Option<PathBuf>),
) -> anyhow::Result<()> {
    let export = stream::Export::prepare(db, project, own, common).await?;
    let (as_of, next_cursor) = (export.as_of(), export.next_cursor.clone());
    let (sender, mut chunks) = mpsc::channel(4);
    let producer = tokio::spawn(export.run(db.clone(), sender, ()));
    let progress = progress();
    let mut out = Output::open(place)?;
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
    eprintln!("{rows} rows of {} as of {as_of}", R::NAME);
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

/// Where rows go. A file is written beside its place and moved there when it is whole.
enum Output {
    Standard(std::io::Stdout),
    Plain { file: std::io::BufWriter<std::fs::File>, place: PathBuf },
    Zipped { file: GzEncoder<std::io::BufWriter<std::fs::File>>, place: PathBuf },
}

impl Output {
    fn open(place: Option<PathBuf>) -> anyhow::Result<Self> {
        let Some(place) = place else {
            return Ok(Self::Standard(std::io::stdout()));
        };
        let part = part_of(&place);
        let file = std::fs::File::create(&part).with_context(|| format!("creating {}", part.display()))?;
        let file = std::io::BufWriter::with_capacity(1 << 20, file);
        Ok(if place.extension().is_some_and(|extension| extension == "gz") {
            Self::Zipped { file: GzEncoder::new(file, Compression::default()), place }
        } else {
            Self::Plain { file, place }
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
        let (file, place) = match self {
            Self::Standard(mut out) => return Ok(out.flush()?),
            Self::Plain { file, place } => (file, place),
            Self::Zipped { file, place } => (file.finish()?, place),
        };
        file.into_inner()?.sync_all()?;
        std::fs::rename(part_of(&place), &place)
            .with_context(|| format!("moving {} into place", place.display()))
    }
}

fn part_of(place: &std::path::Path) -> PathBuf {
    let mut name = place.as_os_str().to_owned();
    name.push(".part");
    name.into()
}
