//! Paths as agents write them, in a normal form: relative to the folder in which the agent began.

use crate::privacy::redact::behind_home;
use crate::types::path::{self, has_drive};

/// Returns the normal form of `path`, as seen from the folder `at`: relative to `root` if the path is in it, and
/// otherwise absolute, or unchanged if no folder is known.
#[must_use]
pub fn normalise(path: &str, at: Option<&str>, root: Option<&str>) -> String {
    let path = slashes(path);
    let whole = match at.filter(|at| !at.is_empty()).map(slashes) {
        Some(at) if !is_absolute(&path) => tidy(&format!("{at}/{path}")),
        _ => tidy(&path),
    };
    let within = root.map(slashes).and_then(|root| {
        let root = tidy(&root);
        let rest = whole.strip_prefix(root.trim_end_matches('/'))?;
        rest.strip_prefix('/').map(str::to_owned)
    });
    within.filter(|path| !path.is_empty()).unwrap_or(whole)
}

/// The folders of files that are soon gone: of the system, and of agents for the output of tools, plans and sessions.
const TEMPORARY: [&str; 7] = [
    "/tmp/",
    "/private/tmp/",
    "/var/tmp/",
    "/private/var/tmp/",
    "/var/folders/",
    "/private/var/folders/",
    "/dev/shm/",
];
const OF_AGENTS: [&str; 5] =
    ["/.claude/projects/", "/.claude/plans/", "/.claude/todos/", "/.codex/sessions/", "/AppData/Local/Temp/"];

/// Returns whether a path in its normal form is that of a file which is soon gone, and in no project.
#[must_use]
pub fn is_temporary(path: &str) -> bool {
    is_absolute(path)
        && (TEMPORARY.iter().any(|folder| path.starts_with(folder))
            || OF_AGENTS.iter().any(|folder| path.contains(folder)))
}

/// Returns whether a path begins at a root, a drive, a server or a home folder, whose name may have been replaced.
fn is_absolute(path: &str) -> bool {
    path::is_absolute(path) || behind_home(path).is_some()
}

/// Returns the normal form of a folder's path, with which paths are compared.
#[must_use]
pub fn folder(path: &str) -> String {
    tidy(&slashes(path))
}

/// Replaces the separators of Windows if the path is clearly one of Windows, whose drives have no case.
fn slashes(path: &str) -> String {
    let is_drive = has_drive(path);
    let is_of_windows = is_drive
        || path.starts_with("\\\\")
        || behind_home(path).is_some_and(|behind| behind.starts_with('\\'));
    if !is_of_windows {
        return path.to_owned();
    }
    let mut path = path.replace('\\', "/");
    if is_drive {
        path[..1].make_ascii_uppercase();
    }
    path
}

/// Removes empty parts, `.` and, as far as possible without access to the file system, `..`.
fn tidy(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if rooted => {}
            part => parts.push(part),
        }
    }
    let tidy = parts.join("/");
    match (rooted, tidy.is_empty()) {
        (true, _) => format!("/{tidy}"),
        (false, true) => ".".to_owned(),
        (false, false) => tidy,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_is_relative_to_its_root_if_it_lies_in_it() {
        const HOME: Option<&str> = Some("[redacted:home-paths]/app");
        for (path, at, root, expected) in [
            ("/src/app/auth/Login.tsx", None, Some("/src/app"), "auth/Login.tsx"),
            ("/src/app/auth/Login.tsx", None, Some("/src/app/"), "auth/Login.tsx"),
            ("./auth//Login.tsx", Some("/src/app"), Some("/src/app"), "auth/Login.tsx"),
            ("../b.rs", Some("/src/app/auth"), Some("/src/app"), "b.rs"),
            ("/src/application/b.rs", None, Some("/src/app"), "/src/application/b.rs"),
            ("/src/app", None, Some("/src/app"), "/src/app"),
            ("auth/Login.tsx", None, Some("/src/app"), "auth/Login.tsx"),
            ("auth/Login.tsx", None, None, "auth/Login.tsx"),
            ("/etc/hosts", Some("/src"), Some("/"), "etc/hosts"),
            ("/../etc", None, None, "/etc"),
            ("../../a", None, None, "../../a"),
            (r"C:\src\app\a.cs", None, Some(r"C:\src\app"), "a.cs"),
            ("c:/src/app/a.cs", None, Some(r"C:\src\app"), "a.cs"),
            (r"C:\src\a.cs", None, Some("c:/src/app"), "C:/src/a.cs"),
            (r"d:\a.cs", None, None, "D:/a.cs"),
            ("~/notes.md", Some("/src"), Some("/src"), "~/notes.md"),
            ("[redacted:home-paths]/app/a.rs", HOME, HOME, "a.rs"),
            ("auth/a.rs", HOME, HOME, "auth/a.rs"),
            ("[redacted:home-paths:9f1c2b7a]/b.rs", HOME, HOME, "[redacted:home-paths:9f1c2b7a]/b.rs"),
            (r"[redacted:home-paths]\app\a.cs", None, Some(r"[redacted:home-paths]\app"), "a.cs"),
            ("[redacted:secrets]/a.rs", HOME, HOME, "[redacted:secrets]/a.rs"),
            ("[redacted:home-paths-2]/a.rs", HOME, HOME, "[redacted:home-paths-2]/a.rs"),
        ] {
            assert_eq!(normalise(path, at, root), expected, "{path}");
        }
    }

    #[test]
    fn a_temporary_file_outside_the_project_is_known_by_its_folder() {
        for (path, root, is) in [
            ("/tmp/claude-1000/tasks/b.output", "/src/app", true),
            ("/private/var/folders/x/T/a.json", "/src/app", true),
            ("/home/a/.claude/projects/-src-app/s/tool-results/b.txt", "/src/app", true),
            (r"C:\Users\a\AppData\Local\Temp\b.txt", r"C:\app", true),
            ("/tmp/app/src/a.rs", "/tmp/app", false),
            ("tmp/a.rs", "/src/app", false),
            ("/home/a/.claude/CLAUDE.md", "/src/app", false),
        ] {
            assert_eq!(is_temporary(&normalise(path, Some(root), Some(root))), is, "{path}");
        }
    }

    proptest! {
        #[test]
        fn a_normal_path_stays_as_it_is(path in "(\\.{0,2}/?[a-c.]{0,3}){0,6}", root in "(/[a-c]){0,3}") {
            let once = normalise(&path, Some(&root), Some(&root));
            prop_assert_eq!(normalise(&once, None, None), once.clone());
            prop_assert_eq!(normalise(&once, Some(&root), Some(&root)), once);
        }
    }
}
