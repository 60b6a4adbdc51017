//! Parquet files of every training pair, from the request for one to its last byte, beside psql's COPY to CSV and DuckDB's
//! conversion of that. DuckDB is the program `duckdb` or the module of `python3`, whichever the `PATH` has.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::load::{Connection, request};
use crate::machine::{Machine, folder};
use crate::rounds::median;
use crate::table::Line;
use crate::{Plan, megabytes};

/// The formats that are measured, and what DuckDB makes of the two columns for each.
const FORMATS: [(&str, &str); 2] = [
    ("raw", "user_intent, valid_dsl"),
    ("openai", "[{role: 'user', content: user_intent}, {role: 'assistant', content: valid_dsl}] as messages"),
];

pub(crate) async fn run(machine: &Machine, plan: &Plan) -> Vec<Line> {
    let duckdb = DuckDb::find();
    if duckdb.is_none() {
        eprintln!("DuckDB is not installed: nothing converts the CSV to Parquet, and there is no ratio");
    }
    let folder = folder();
    let (mut files, mut mergers) = (FORMATS.map(|_| Vec::new()), Vec::new());
    let (mut copies, mut conversions) = (Vec::new(), FORMATS.map(|_| Vec::new()));
    for _ in 0..plan.rounds {
        for ((format, _), files) in FORMATS.iter().zip(&mut files) {
            files.push(Snapshot::take(machine, format).await);
            mergers.push(machine.merge_snapshots().await);
        }
        let csv = folder.path().join("pairs.csv");
        copies.push(copy(machine, &csv));
        let Some(duckdb) = &duckdb else { continue };
        for ((_, columns), conversions) in FORMATS.iter().zip(&mut conversions) {
            conversions.push(duckdb.convert(&csv, columns));
        }
    }
    let copy = median(copies);
    let lines = FORMATS.iter().zip(files).zip(conversions).flat_map(|(((format, _), files), conversions)| {
        let seconds = median(files.iter().map(|file| file.seconds).collect());
        let growth = files.iter().map(|file| file.growth).fold(0.0, f64::max);
        let bytes = files.last().map_or(f64::NAN, |file| file.bytes as f64);
        let what = format!("Parquet of training-pairs, {format}, against psql COPY to CSV and DuckDB");
        let speed = Line::new(what, format!("{seconds:.2} s, {}", megabytes(bytes)));
        let speed = if duckdb.is_some() {
            let conversion = median(conversions);
            speed
                .baseline(format!("{copy:.2} + {conversion:.2} s"))
                .at_least((copy + conversion) / seconds, 1.0)
        } else {
            speed.baseline(format!("{copy:.2} s of COPY alone, without DuckDB"))
        };
        let what = format!("Parquet of training-pairs, {format}: growth of memory, at most");
        [speed, Line::new(what, megabytes(growth)).goal("< 64 MB", growth < 64e6)]
    });
    let merging = format!("{:.2} s", median(mergers));
    lines
        .chain([Line::new("the index of the records in such a snapshot, merged afterwards", merging)])
        .collect()
}

/// A snapshot that was made and downloaded.
struct Snapshot {
    seconds: f64,
    bytes: usize,
    /// The most that the server's memory has grown by meanwhile, in bytes.
    growth: f64,
}

impl Snapshot {
    async fn take(machine: &Machine, format: &str) -> Self {
        let (idle, mut most) = (machine.memory(), 0.0_f64);
        let begun = Instant::now();
        let mut connection = Connection::open(&machine.address).await;
        let body = json!({"dataset": "training-pairs", "format": format, "file": "parquet"}).to_string();
        let mut post = request("default", "/v1/snapshots", Some(("application/json", &body)));
        let snapshot = loop {
            let snapshot: Value = serde_json::from_str(connection.send(&post).await).expect("JSON");
            most = most.max(machine.memory());
            match snapshot["state"].as_str() {
                Some("complete") => break snapshot,
                Some("failed") => panic!("the snapshot has failed: {snapshot}"),
                _ => {}
            }
            let id = snapshot["id"].as_str().expect("an id");
            post = request("default", &format!("/v1/snapshots/{id}"), None);
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let path = snapshot["path"].as_str().expect("a path");
        let watch = || most = most.max(machine.memory());
        let bytes = Connection::open(&machine.address).await.drain(path, watch).await;
        Self { seconds: begun.elapsed().as_secs_f64(), bytes, growth: most - idle }
    }
}

/// How long psql takes to write the pairs into a file, in seconds.
fn copy(machine: &Machine, csv: &Path) -> f64 {
    const SQL: &str = "copy (select user_intent, final_valid_dsl as valid_dsl from generations
        where project = 'default' and success order by completed_at, id) to stdout (format csv, header)";
    let begun = Instant::now();
    let mut command = machine.program("psql");
    let status = command.args(["-q", "-c", SQL]).stdout(File::create(csv).expect("a file")).status();
    assert!(status.expect("psql").success(), "psql fails");
    begun.elapsed().as_secs_f64()
}

/// A program that runs a statement of DuckDB, which comes after these arguments.
struct DuckDb(&'static [&'static str]);

impl DuckDb {
    fn find() -> Option<Self> {
        const PYTHON: &str = "import duckdb, sys; duckdb.execute(sys.argv[1])";
        let mut programs = [Self(&["duckdb", "-c"]), Self(&["python3", "-c", PYTHON])].into_iter();
        programs.find(|program| program.run("select 1"))
    }

    /// Whether it succeeds.
    fn run(&self, sql: &str) -> bool {
        let mut command = Command::new(self.0[0]);
        command.args(&self.0[1..]).arg(sql).stdout(Stdio::null());
        command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// How long it takes to make Parquet of a CSV file, in seconds.
    fn convert(&self, csv: &Path, columns: &str) -> f64 {
        let (csv, parquet) = (csv.display(), csv.with_extension("parquet"));
        let sql = format!(
            "copy (select {columns} from read_csv('{csv}', header = true,
                columns = {{user_intent: 'varchar', valid_dsl: 'varchar'}}))
            to '{}' (format parquet, compression zstd)",
            parquet.display()
        );
        let begun = Instant::now();
        assert!(self.run(&sql), "DuckDB fails: {sql}");
        begun.elapsed().as_secs_f64()
    }
}
