//! Finding the Postgres programs on this machine.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::Settings;

/// The oldest major version of Postgres that Gleaner works with.
const OLDEST: u32 = 14;

/// Where distributions and installers put the programs. A `*` matches anything within one name.
const USUAL_FOLDERS: [&str; 8] = [
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/libexec/postgresql*",
    "/usr/lib/postgresql*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/Library/PostgreSQL/*/bin",
    "/usr/local/pgsql/bin",
];

/// One installed Postgres: a folder with the programs `initdb` and `postgres`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Programs {
    folder: PathBuf,
    major: u32,
}

impl Programs {
    /// Finds the programs in the configured folder, or else on `PATH`, by `pg_config --bindir` or in the
    /// usual folders, newest first. `wanted` is the version that made an existing cluster, which is the only
    /// one that can open it.
    pub(super) fn find(settings: &Settings, wanted: Option<u32>) -> Result<Self> {
        if let Some(folder) = &settings.pg_bindir {
            let found: Vec<_> = Self::in_folder(folder).into_iter().collect();
            return choose(&found, wanted, &format!("in {} (PG_BINDIR)", folder.display()));
        }
        let path = settings.path.as_deref().unwrap_or_default();
        let mut found: Vec<_> = std::env::split_paths(path).filter_map(|f| Self::in_folder(&f)).collect();
        if !found.iter().any(|p| p.suits(wanted)) {
            found.extend(pg_config_bindir(path).and_then(|f| Self::in_folder(&f)));
        }
        if !found.iter().any(|p| p.suits(wanted)) {
            found.extend(newest_first(&USUAL_FOLDERS));
        }
        choose(&found, wanted, "on this machine")
    }

    /// Returns the path of the program `initdb` or `postgres`.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Examines a folder. Returns none if either program is missing or does not run. Symbolic links are
    /// followed, because `initdb` looks for `postgres` and its shared files next to where it really is.
    fn in_folder(folder: &Path) -> Option<Self> {
        let initdb = folder.join("initdb").canonicalize().ok()?;
        let folder = initdb.parent()?;
        let output = Command::new(folder.join("postgres")).arg("--version").output().ok()?;
        let major = major_version(std::str::from_utf8(&output.stdout).ok()?)?;
        Some(Self { folder: folder.into(), major })
    }

    fn suits(&self, wanted: Option<u32>) -> bool {
        self.major >= OLDEST && wanted.is_none_or(|w| w == self.major)
    }
}

fn choose(found: &[Programs], wanted: Option<u32>, place: &str) -> Result<Programs> {
    if let Some(programs) = found.iter().find(|p| p.suits(wanted)) {
        return Ok(programs.clone());
    }
    let versions: Vec<_> = found.iter().map(|p| p.major.to_string()).collect();
    let passed_over = match versions.join(", ") {
        none if none.is_empty() => none,
        some => format!(" (found only version {some})"),
    };
    match wanted {
        Some(major) => bail!(
            "the data folder was made by PostgreSQL {major}, whose programs were not found {place}{passed_over}: \
             install that version, point PG_BINDIR at it, or set DATABASE_URL"
        ),
        None => bail!(
            "PostgreSQL {OLDEST} or newer was not found {place}{passed_over}: `make run` installs it, or point \
             PG_BINDIR at its programs, or set DATABASE_URL to a database that runs elsewhere"
        ),
    }
}

/// Reads a major version: `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)` is 15, and `17beta2` is 17.
fn major_version(line: &str) -> Option<u32> {
    let version = line.split_once("(PostgreSQL) ")?.1;
    let digits = version.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Asks the first `pg_config` on the path, which exists even where only the development files are linked.
fn pg_config_bindir(path: &OsStr) -> Option<PathBuf> {
    let program = std::env::split_paths(path).map(|f| f.join("pg_config")).find(|p| p.is_file())?;
    let output = Command::new(program).arg("--bindir").output().ok()?;
    let folder = std::str::from_utf8(&output.stdout).ok()?.trim();
    (!folder.is_empty()).then(|| folder.into())
}

/// Finds every Postgres in the folders that match `patterns`, the newest first.
fn newest_first(patterns: &[&str]) -> Vec<Programs> {
    let mut found: Vec<_> =
        patterns.iter().flat_map(|p| matching(p)).filter_map(|f| Programs::in_folder(&f)).collect();
    found.sort_by_key(|p| std::cmp::Reverse(p.major));
    found
}

/// Returns the paths that match an absolute pattern with at most one `*` in each name.
fn matching(pattern: &str) -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::from("/")];
    for name in pattern.split('/').filter(|n| !n.is_empty()) {
        paths = match name.split_once('*') {
            None => paths.into_iter().map(|p| p.join(name)).collect(),
            Some((before, after)) => paths
                .iter()
                .filter_map(|p| p.read_dir().ok())
                .flatten()
                .filter_map(Result::ok)
                .filter(|entry| {
                    let name = entry.file_name();
                    let name = name.to_string_lossy();
                    name.strip_prefix(before).is_some_and(|rest| rest.ends_with(after))
                })
                .map(|entry| entry.path())
                .collect(),
        };
    }
    paths
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Makes a folder with programs that claim to be of `version`.
    fn pretend(folder: &Path, version: &str) {
        fs::create_dir_all(folder).unwrap();
        for name in ["initdb", "postgres"] {
            let program = folder.join(name);
            fs::write(&program, format!("#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    fn settings(bindir: Option<&Path>, path: &str) -> Settings {
        Settings { pg_bindir: bindir.map(Into::into), path: Some(path.into()), ..Settings::default() }
    }

    #[test]
    fn versions_are_read_from_release_and_beta() {
        assert_eq!(major_version("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(major_version("postgres (PostgreSQL) 19beta1\n"), Some(19));
        assert_eq!(major_version("something else"), None);
    }

    #[test]
    fn the_newest_of_the_usual_folders_comes_first() {
        let root = tempfile::tempdir().unwrap();
        for version in ["9", "14", "17"] {
            pretend(&root.path().join(version).join("bin"), version);
        }
        let pattern = format!("{}/*/bin", root.path().display());
        let majors: Vec<_> = newest_first(&[&pattern]).iter().map(|p| p.major).collect();
        assert_eq!(majors, [17, 14, 9]);
    }

    #[test]
    fn links_are_followed_to_where_the_programs_really_are() {
        let root = tempfile::tempdir().unwrap();
        let (real, links) = (root.path().join("real"), root.path().join("links"));
        pretend(&real, "16.1");
        fs::create_dir(&links).unwrap();
        std::os::unix::fs::symlink(real.join("initdb"), links.join("initdb")).unwrap();
        let found = Programs::find(&settings(None, links.to_str().unwrap()), None).unwrap();
        assert_eq!(found.folder, real.canonicalize().unwrap());
    }

    #[test]
    fn an_older_version_on_the_path_is_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let (old, new) = (root.path().join("old"), root.path().join("new"));
        pretend(&old, "13.9");
        pretend(&new, "16.1");
        let path = format!("{}:{}", old.display(), new.display());
        assert_eq!(Programs::find(&settings(None, &path), None).unwrap().major, 16);
        let error = Programs::find(&settings(Some(&old), ""), None).unwrap_err().to_string();
        assert!(error.contains("found only version 13") && error.contains("DATABASE_URL"), "{error}");
    }

    #[test]
    fn an_existing_cluster_is_opened_by_the_version_that_made_it() {
        let root = tempfile::tempdir().unwrap();
        let (older, newer) = (root.path().join("older"), root.path().join("newer"));
        pretend(&older, "15.2");
        pretend(&newer, "17.0");
        let path = format!("{}:{}", newer.display(), older.display());
        assert_eq!(Programs::find(&settings(None, &path), Some(15)).unwrap().major, 15);
        let error = Programs::find(&settings(Some(&newer), ""), Some(15)).unwrap_err().to_string();
        assert!(
            error.contains("made by PostgreSQL 15") && error.contains("found only version 17"),
            "{error}"
        );
    }
}
