//! Folders of programs in the user's home, the files of settings in them, and atomic replacement of files.

use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};
use std::{env, fs, process};

use anyhow::{Context as _, ensure};

use super::edit::Change;

/// How many symbolic links are followed to a file that is not there yet.
const LINKS: usize = 40;

/// Reads a text file. What is no file, such as a pipe that nobody writes to, is an error and not waited for.
pub(super) fn read_text(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    fs::read_to_string(path)
}

/// Writes `text` to `path` atomically: after a crash there is either the old file or the new one. Symbolic
/// links are followed, also to a file that is not there yet; the file's permissions and owner stay, and missing
/// folders are made. A file with several names is written in place, because it would lose the others.
pub(super) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let path = follow(path)?;
    let old = fs::metadata(&path).ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return Err(io::Error::other("it is not a regular file"));
    }
    if old.as_ref().is_some_and(|old| old.nlink() > 1) {
        return fs::write(&path, text);
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", process::id()));
    let new = folder.join(name);
    let written = (|| {
        let mut file = fs::File::create(&new)?;
        if let Some(old) = &old {
            let made = file.metadata()?;
            if (old.uid(), old.gid()) != (made.uid(), made.gid()) {
                fchown(&file, Some(old.uid()), Some(old.gid()))?;
            }
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

/// Returns the file that an option `--output` names, which is written under another name and then renamed. Symbolic links are
/// followed, so that they stay. Anything but a regular file would be gone, such as a device.
pub(super) fn destination(path: &Path) -> anyhow::Result<PathBuf> {
    ensure!(!path.is_dir(), "{} is a folder; --output names the file to write", path.display());
    let path = if path.is_symlink() { follow(path)? } else { path.to_owned() };
    ensure!(
        path.is_file() || !path.exists(),
        "{} is not a regular file; --output would put one in its place",
        path.display()
    );
    Ok(path)
}

/// Returns where a path leads, though the last of its symbolic links may lead to nothing yet.
fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new(".")).join(target),
            Err(_) => return Ok(fs::canonicalize(&path).unwrap_or(path)),
        }
    }
    Err(io::Error::other("its symbolic links form a loop"))
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

/// Returns what a file of settings holds; nothing, if it is not there.
pub(super) fn read_settings(path: &Path) -> anyhow::Result<String> {
    match read_text(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

/// Says that nothing was done to a file, for errors.
pub(super) fn untouched(path: &Path) -> String {
    format!("{} was left as it is", path.display())
}

/// Writes a file of settings if something has changed in it, removes it if nothing is left, and prints what was done.
pub(super) fn write_settings(path: &Path, text: &str, changes: &[(String, Change)]) -> anyhow::Result<()> {
    let different = changes.iter().any(|(_, change)| *change != Change::Kept);
    if text.is_empty() && different {
        fs::remove_file(path).with_context(|| format!("removing {}", path.display()))?;
    } else if different {
        replace(path, text.as_bytes()).with_context(|| format!("writing {}", path.display()))?;
    }
    println!("{}:", path.display());
    for (name, change) in changes {
        println!("  {name}: {change}");
    }
    if !different {
        println!("  nothing to change");
    } else if text.is_empty() {
        println!("  the file held nothing else and was removed");
    }
    Ok(())
}

/// Writes bytes in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
