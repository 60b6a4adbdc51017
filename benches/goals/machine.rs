//! The measured server with its Postgres: started, watched and stopped.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgConnection};

/// The key that every request sends, because authentication is on.
pub(crate) const KEY: &str = "gk-bench-0123456789-0123456789-0123456789";

/// A running server on a private, durable Postgres.
pub(crate) struct Machine {
    server: Child,
    /// The address on which the server listens.
    pub(crate) address: String,
    options: PgConnectOptions,
    /// The folder of the programs of its Postgres.
    programs: PathBuf,
    postmaster: u32,
    _folder: tempfile::TempDir,
}

/// The CPU time used, in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) server: f64,
    pub(crate) postgres: f64,
}

/// Makes a folder that the user of Postgres can also reach if root runs the benchmark.
pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/tmp").expect("a temporary folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("a folder of ours");
    folder
}

/// Starts a server program on a data folder, and waits until it is ready. Returns the process and its address.
pub(crate) fn serve(program: &Path, data: &Path, options: &[&str]) -> (Child, String) {
    let mut command = Command::new(program);
    command
        .args(["serve", "--bind", "127.0.0.1:0", "--db-connections", "8", "--admin-key", KEY])
        .args(["--log", "error", "--data-dir"])
        .arg(data)
        .args(options);
    let mut server =
        command.env_remove("DATABASE_URL").stdout(Stdio::piped()).spawn().expect("the service starts");
    let line = first_line(&mut server);
    let address = line.split_once("http://").and_then(|(_, rest)| rest.split_whitespace().next());
    let address = address.expect("an address").to_owned();
    while !is_ready(&address) {
        std::thread::sleep(Duration::from_millis(10));
    }
    (server, address)
}

fn is_ready(address: &str) -> bool {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let request = "GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.starts_with("HTTP/1.1 200")
}

/// Returns how to connect to the database behind a socket.
pub(crate) fn database(socket: &str) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass().socket(socket).port(5432).username("postgres").database("gleaner")
}

/// Returns the first line that a process prints.
pub(crate) fn first_line(process: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    line
}

/// Stops a process with a signal, and waits for it.
pub(crate) fn stop(process: &mut Child) {
    let pid = nix::unistd::Pid::from_raw(process.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it runs");
    process.wait().expect("it ends");
}

impl Machine {
    /// Starts a server program with its own cluster.
    pub(crate) fn start(program: &Path) -> Self {
        Self::start_with(program, &[])
    }

    /// Starts a server program with further options.
    pub(crate) fn start_with(program: &Path, options: &[&str]) -> Self {
        let folder = folder();
        let data = folder.path().join("data");
        let (server, address) = serve(program, &data, options);
        // The lines of the file: process id, data folder, start time, port, folder of the socket.
        let pid_file = fs::read_to_string(data.join("pgdata/postmaster.pid")).expect("a running Postgres");
        let lines: Vec<_> = pid_file.lines().collect();
        let postmaster = lines[0].parse().expect("a process id");
        let options = database(lines[4]);
        let program = fs::read_link(format!("/proc/{postmaster}/exe")).expect("its program");
        let programs = program.parent().expect("a folder").to_owned();
        Self { server, address, options, programs, postmaster, _folder: folder }
    }

    pub(crate) async fn connect(&self) -> PgConnection {
        self.options.connect().await.expect("the database answers")
    }

    /// Writes the changes in the database to the disk.
    pub(crate) async fn checkpoint(&self) {
        sqlx::raw_sql("checkpoint").execute(&mut self.connect().await).await.expect("a checkpoint");
    }

    /// Merges the new entries of the index of the records in snapshots, which the server would do in the next seconds.
    /// Returns how long it takes, in seconds.
    pub(crate) async fn merge_snapshots(&self) -> f64 {
        const SQL: &str = "select gin_clean_pending_list('snapshot_contents_records')";
        let (mut connection, begun) = (self.connect().await, Instant::now());
        sqlx::raw_sql(SQL).execute(&mut connection).await.expect("a merged index");
        begun.elapsed().as_secs_f64()
    }

    /// Returns the folder of the socket of its Postgres.
    pub(crate) fn socket(&self) -> &Path {
        self.options.get_socket().expect("a socket")
    }

    /// Returns a program of Postgres that connects to the database.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command
            .env("PGHOST", self.socket())
            .env("PGUSER", "postgres")
            .env("PGDATABASE", "gleaner")
            .env("PGPORT", "5432");
        command
    }

    /// Returns the CPU time used so far.
    pub(crate) fn usage(&self) -> Usage {
        let children = fs::read_dir("/proc").expect("proc").flatten().filter_map(|entry| {
            let stat = stat(entry.file_name().to_str()?.parse().ok()?)?;
            (stat.parent == self.postmaster).then_some(stat.own)
        });
        let postgres =
            stat(self.postmaster).map_or(0, |stat| stat.own + stat.children) + children.sum::<u64>();
        let server = stat(self.server.id()).map_or(0, |stat| stat.own);
        // The kernel counts in hundredths of a second.
        Usage { server: server as f64 / 100.0, postgres: postgres as f64 / 100.0 }
    }

    /// Returns the memory that the server uses, in bytes.
    pub(crate) fn memory(&self) -> f64 {
        memory(self.server.id(), "VmRSS")
    }

    /// Returns the maximum memory that the server has used, in bytes.
    pub(crate) fn memory_peak(&self) -> f64 {
        memory(self.server.id(), "VmHWM")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        stop(&mut self.server);
    }
}

/// Returns a value of a process's memory, in bytes, by the kernel's name for it.
pub(crate) fn memory(pid: u32, name: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kilobytes| kilobytes.parse().ok()).unwrap_or(f64::NAN) * 1024.0
}

struct Stat {
    parent: u32,
    own: u64,
    children: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain any characters.
    let fields: Vec<_> = text.rsplit_once(") ")?.1.split(' ').collect();
    let ticks =
        |first: usize| Some(fields[first].parse::<u64>().ok()? + fields[first + 1].parse::<u64>().ok()?);
    Some(Stat { parent: fields[1].parse().ok()?, own: ticks(11)?, children: ticks(13)? })
}

/// Describes the machine in one line.
pub(crate) fn description() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("", |m| m.1);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = meminfo.split_whitespace().nth(1).and_then(|kilobytes| kilobytes.parse::<f64>().ok());
    format!("{cores} cores of {model}, {:.0} GB", memory.unwrap_or_default() / 1e6)
}
