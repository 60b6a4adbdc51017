//! `gleaner snapshots`, and the snapshots that `gleaner export --snapshot` makes.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use sqlx::PgPool;
use ureq::http::Method;
use uuid::Uuid;

use super::client::{Answer, Client};
use super::target::{Found, Local, Missing, Target};
use super::{defaults, files, words};
use crate::audit::{self, Action};
use crate::auth::Actor;
use crate::config::from_environment;
use crate::db::silence::LongestStatement;
use crate::exports::places::{Exports, Limits};
use crate::exports::snapshots::{self, CHUNK, build, make, request, store};
use crate::http::memory::Budget;
use crate::{db, projects};

/// The number of times that an interrupted download is resumed without progress.
const MOST_RETRIES: u32 = 10;
/// The pause between two requests for the progress of a snapshot.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct Snapshots {
    #[command(subcommand)]
    command: Option<Command>,
    /// The project of the snapshots. The default is the key's project, or `default` without a key.
    #[arg(long, global = true, value_name = "NAME")]
    project: Option<String>,
    #[command(flatten)]
    pub(super) target: Target,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List snapshots, newest first. This is the default.
    List,
    /// Download the file of a snapshot. An interrupted download continues where it ended.
    #[command(after_help = "Example:
  gleaner snapshots download 01946983-4c40-7a1c-9d3e-5b0f6c2e8a71 -o train.parquet")]
    Download {
        /// The snapshot's id.
        id: Uuid,
        /// The file to write. It appears only when it is complete. The default is the snapshot's own name in the
        /// current folder.
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Delete a snapshot with its file.
    Delete {
        /// The snapshot's id.
        id: Uuid,
    },
}

/// The properties of a snapshot that the command uses.
#[derive(Debug, Deserialize)]
struct Known {
    id: Uuid,
    name: String,
    dataset: String,
    format: String,
    file: snapshots::File,
    state: String,
    rows: i64,
    bytes: u64,
    sha256: Option<String>,
    path: String,
    error: Option<String>,
    erased_records: i64,
    created_at: String,
}

/// A page of the list of snapshots.
#[derive(Debug, Deserialize)]
struct Page {
    data: Vec<Known>,
    next_cursor: Option<String>,
}

impl Snapshots {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let place = Place::of(self.target.find(Missing::Say).await?, self.project).await?;
        match self.command.unwrap_or(Command::List) {
            Command::List => {
                for Known {
                    id, dataset, format, file, state, rows, bytes, created_at, erased_records, ..
                } in place.list().await?
                {
                    let erased = match erased_records {
                        0 => String::new(),
                        count => format!("  {count} of its records were erased"),
                    };
                    words::print(format_args!(
                        "{id}  {created_at}  {state:8}  {dataset}  {format}  {}  {rows} rows  {bytes} bytes{erased}",
                        file.ending()
                    ))?;
                }
            }
            Command::Download { id, output } => {
                let known = place.get(id).await?;
                place.download(&known, output).await?;
            }
            Command::Delete { id } => place.delete(id).await?,
        }
        place.close().await;
        Ok(ExitCode::SUCCESS)
    }
}

/// Makes a snapshot of an export, waits until it is complete, and downloads it if there is a file to write.
pub(super) async fn keep(
    found: Found,
    project: Option<String>,
    body: Map<String, Value>,
    output: Option<PathBuf>,
) -> anyhow::Result<()> {
    let place = Place::of(found, project).await?;
    let mut known = place.make(body).await?;
    while ["waiting", "building"].contains(&known.state.as_str()) {
        tokio::time::sleep(PAUSE).await;
        known = place.get(known.id).await?;
    }
    if known.state != "complete" {
        bail!("the snapshot {} could not be built: {}", known.id, known.error.unwrap_or_default());
    }
    words::note(format_args!("snapshot {} of {} rows at {}", known.id, known.rows, known.path));
    match output {
        Some(output) => place.download(&known, Some(output)).await?,
        None => words::print(known.id)?,
    }
    place.close().await;
    Ok(())
}

/// The server or database with the snapshots.
enum Place {
    Server { client: Client, project: Option<String> },
    Database { db: PgPool, exports: Box<Exports>, project: String, _local: Box<Local> },
}

impl Place {
    async fn of(found: Found, project: Option<String>) -> anyhow::Result<Self> {
        Ok(match found {
            Found::Server(client) => Self::Server { client, project },
            Found::Database(local) => {
                let project = project.unwrap_or_else(|| "default".to_owned());
                let db = db::pool(&local.options, "gleaner", 2);
                ensure!(
                    projects::store::exists(&db, &project).await?,
                    "there is no project {project}; PUT /v1/projects/{project} creates it"
                );
                let exports = Exports::new(
                    &local.options,
                    from_environment::<Limits>()?,
                    &Arc::default(),
                    // A command has nobody beside it.
                    &Budget::new(usize::MAX),
                    LongestStatement::default(),
                );
                Self::Database { db, exports: exports.into(), project, _local: local }
            }
        })
    }

    async fn close(self) {
        if let Self::Database { db, exports, .. } = self {
            db.close().await;
            exports.db.close().await;
        }
    }

    async fn list(&self) -> anyhow::Result<Vec<Known>> {
        match self {
            Self::Server { client, project } => tokio::task::block_in_place(|| {
                let (mut all, mut cursor) = (Vec::new(), String::new());
                loop {
                    let path = format!("/v1/snapshots?limit=500{cursor}");
                    let answer = client.accepted(client.call(Method::GET, &path, project.as_deref()))?;
                    let Page { data, next_cursor } = client.json(&answer)?;
                    all.extend(data);
                    match next_cursor {
                        Some(next) => cursor = format!("&cursor={next}"),
                        None => return Ok(all),
                    }
                }
            }),
            Self::Database { db, project, .. } => {
                let all = store::all(db, project).await?;
                all.iter().map(known).collect()
            }
        }
    }

    async fn get(&self, id: Uuid) -> anyhow::Result<Known> {
        match self {
            Self::Server { client, project } => tokio::task::block_in_place(|| {
                let path = format!("/v1/snapshots/{id}");
                client.json(&client.accepted(client.call(Method::GET, &path, project.as_deref()))?)
            }),
            Self::Database { db, project, .. } => known(&store::get(db, project, id).await?),
        }
    }

    async fn delete(&self, id: Uuid) -> anyhow::Result<()> {
        match self {
            Self::Server { client, project } => tokio::task::block_in_place(|| {
                let path = format!("/v1/snapshots/{id}");
                client.accepted(client.call(Method::DELETE, &path, project.as_deref())).map(drop)
            }),
            Self::Database { db, project, .. } => {
                let mut transaction = db::begin(db).await?;
                let found = store::delete(&mut transaction, project, id).await?;
                ensure!(found, "there is no snapshot {id} in the project {project}");
                let actor = Actor::COMMAND_LINE;
                let details = json!({"id": id});
                audit::note(&mut transaction, project, &actor, Action::SnapshotDeleted, details).await?;
                Ok(transaction.commit().await?)
            }
        }
    }

    async fn make(&self, body: Map<String, Value>) -> anyhow::Result<Known> {
        match self {
            Self::Server { client, project } => tokio::task::block_in_place(|| {
                let body = serde_json::to_vec(&body)?;
                let answer = client.post("/v1/snapshots", "application/json", project.as_deref(), &body);
                client.json(&client.accepted(answer)?)
            }),
            Self::Database { db, exports, project, .. } => {
                let new: request::NewSnapshot = serde_json::from_value(body.into())?;
                let tenant = projects::store::tenant(db, project, &defaults()?).await?;
                let tenant = Arc::new(tenant.with_context(|| format!("there is no project {project}"))?);
                let (id, _) = make::make(db, exports, &tenant, &Actor::COMMAND_LINE, new).await?;
                build::build_due(Exports::clone(exports)).await?;
                self.get(id).await
            }
        }
    }

    /// Downloads a file under a temporary name, from where an earlier download ended, and renames it when it is
    /// complete.
    async fn download(&self, known: &Known, output: Option<PathBuf>) -> anyhow::Result<()> {
        ensure!(known.state == "complete", "the snapshot {} is {}", known.id, known.state);
        let output = match output {
            Some(output) => files::destination(&output)?,
            None => known.file_name()?,
        };
        let mut part = output.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let mut retries = 0;
        loop {
            let mut file = OpenOptions::new().create(true).append(true).open(&part);
            let file =
                file.as_mut().map_err(|error| anyhow::anyhow!("cannot write {}: {error}", part.display()))?;
            let from = file.metadata()?.len();
            if from >= known.bytes {
                break;
            }
            let read = match self {
                Self::Server { client, project } => {
                    tokio::task::block_in_place(|| from_server(client, project.as_deref(), known, from, file))
                }
                Self::Database { db, project, .. } => from_database(db, project, known, from, file).await,
            };
            let grown = fs::metadata(&part).is_ok_and(|metadata| metadata.len() > from);
            retries = if grown { 0 } else { retries + 1 };
            if let (Err(error), true) = (read, retries > MOST_RETRIES) {
                return Err(error);
            }
        }
        let expected = known.sha256.as_deref().unwrap_or_default();
        if hash(&part)? != expected {
            fs::remove_file(&part)?;
            bail!("the download is not the file of the snapshot {}, and was deleted; try again", known.id);
        }
        fs::rename(&part, &output).with_context(|| format!("moving {} into place", output.display()))?;
        words::note(format_args!("{} rows in {}", known.rows, output.display()));
        Ok(())
    }
}

impl Known {
    /// Returns the name of the file if none is chosen. A server that is not ours could name any file of this machine.
    fn file_name(&self) -> anyhow::Result<PathBuf> {
        let name = format!("{}.{}", self.name, self.file.ending());
        let is_plain = Path::new(&name).file_name().is_some_and(|last| last == name.as_str());
        ensure!(is_plain, "{name:?} is not the name of a file; choose one with --output");
        Ok(name.into())
    }
}

fn known(snapshot: &snapshots::Snapshot) -> anyhow::Result<Known> {
    Ok(serde_json::from_value(serde_json::to_value(snapshot)?)?)
}

fn from_server(
    client: &Client,
    project: Option<&str>,
    known: &Known,
    from: u64,
    file: &mut File,
) -> anyhow::Result<()> {
    // Anything else could be the address of another server, which would be given the key.
    ensure!(known.path.starts_with('/'), "the server has given {:?} as the path of the file", known.path);
    let response =
        client.stream_from(&known.path, project, from).map_err(|error| client.unanswered(&error))?;
    if response.status() != 206 {
        let answer = Answer::read(response).map_err(|error| client.unanswered(&error))?;
        bail!("{}", client.refusal(&answer));
    }
    let mut body = response.into_body().into_reader().take(known.bytes - from);
    let mut chunk = vec![0; 64 << 10];
    loop {
        let read = body
            .read(&mut chunk)
            .with_context(|| format!("the download from {} was interrupted", client.url()))?;
        if read == 0 {
            return Ok(());
        }
        file.write_all(&chunk[..read])?;
    }
}

async fn from_database(
    db: &PgPool,
    project: &str,
    known: &Known,
    from: u64,
    file: &mut File,
) -> anyhow::Result<()> {
    let size = CHUNK as u64;
    let mut at = from;
    while at < known.bytes {
        let chunk = store::chunk(db, project, known.id, at / size).await?;
        let skipped = usize::try_from(at % size)?;
        file.write_all(&chunk[skipped..])?;
        at += (chunk.len() - skipped) as u64;
    }
    Ok(())
}

fn hash(path: &Path) -> anyhow::Result<String> {
    let mut file = File::open(path)?;
    let (mut hash, mut chunk) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        let read = file.read(&mut chunk)?;
        if read == 0 {
            return Ok(files::hex(&hash.finalize()));
        }
        hash.update(&chunk[..read]);
    }
}
