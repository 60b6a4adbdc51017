//! Folders of programs in the user's home, and atomic replacement of files.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{env, fs, process};

use anyhow::Context as _;

/// Writes `text` to `path` atomically: after a crash there is either the old file or the new one. A symbolic
/// link is followed, the file's permissions stay, and missing folders are made.
pub(super) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", process::id()));
    let new = folder.join(name);
    let written = (|| {
        let mut file = fs::File::create(&new)?;
        if let Ok(old) = fs::metadata(&path) {
            file.set_permissions(old.permissions())?;
        }
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&new, &path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// Returns a program's own folder, which the environment variable names or else is `folder` in the user's
/// home.
pub(super) fn home(variable: &str, folder: &str) -> anyhow::Result<PathBuf> {
    if let Some(path) = env::var_os(variable).filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let home = env::home_dir().filter(|home| !home.as_os_str().is_empty());
    Ok(home.with_context(|| format!("neither HOME nor {variable} is set"))?.join(folder))
}
