//! Repositories, of which the folders that agents work in are clones or worktrees. All clones and worktrees share
//! what was learned in them.

use uuid::Uuid;

use super::paths;
use crate::privacy::redact::behind_home;
use crate::types::derived_id;

/// The maximum number of characters of a repository's name. A longer name is cut.
const MOST: usize = 200;
/// The name of a folder that contains a repository's worktrees, alone or after the name of the repository.
const WORKTREES: &str = "worktrees";

/// Returns the name of the repository that `root` is a clone or a worktree of. It is empty if no folder is known.
///
/// It is the name of the folder. For a worktree, it is the name before `worktrees` (`app` for
/// `/src/app-worktrees/fix`), or else the folder that contains the worktrees (`app` for `/src/app/.worktrees/fix` and
/// `/src/app/.claude/worktrees/fix`), or else the last folder, because worktrees in a hidden folder of a home can be
/// of any repository.
#[must_use]
pub fn repository(root: &str) -> String {
    let root = paths::folder(root);
    let parts: Vec<&str> = root.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
    let name = parts.iter().enumerate().find_map(|(at, part)| owner(&parts[..at], part));
    let name = name.or_else(|| parts.last().copied()).unwrap_or_default();
    name.chars().take(MOST).collect()
}

/// Returns the id of a file, which is the same in every clone of its repository.
#[must_use]
pub fn file_id(repository: &str, path: &str) -> Uuid {
    derived_id(&[b"file", repository.as_bytes(), path.as_bytes()])
}

/// Returns the repository whose worktrees are in the folder `part` of the folders `above`. There is none if the
/// folder contains no worktrees or does not say whose.
fn owner<'a>(above: &[&'a str], part: &'a str) -> Option<&'a str> {
    let before = part.strip_suffix(WORKTREES)?;
    let name = before.trim_end_matches(['-', '_', '.']);
    if !name.is_empty() {
        return Some(name).filter(|name| *name != before);
    }
    let outer = above.iter().rposition(|part| !part.starts_with('.'))?;
    // Worktrees in a home can be of any repository: `/home/jane/.codex/worktrees/4f2a/app`.
    let is_home = outer == 1 && matches!(above[0], "home" | "Users")
        || outer == 0 && (above[0] == "root" || behind_home(above[0]).is_some());
    (!is_home).then_some(above[outer])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn clones_and_worktrees_have_the_name_of_their_repository() {
        for (root, expected) in [
            ("/src/app", "app"),
            ("/home/jane/code/app/", "app"),
            ("/src/app/.worktrees/fix", "app"),
            ("/src/app/.worktrees/jane/fix", "app"),
            ("/src/app/.claude/worktrees/fix", "app"),
            ("/src/app-worktrees/fix", "app"),
            ("/src/app.worktrees/fix", "app"),
            ("/home/jane/.codex/worktrees/4f2a/app", "app"),
            ("[redacted:home-paths]/.codex/worktrees/4f2a/app", "app"),
            ("[redacted:home-paths]/app/.worktrees/fix", "app"),
            ("/root/app/.worktrees/fix", "app"),
            ("/root/.codex/worktrees/4f2a/app", "app"),
            ("/src/myworktrees/app", "app"),
            (r"C:\src\app", "app"),
            ("/worktrees", "worktrees"),
            ("/src/worktrees/app", "src"),
            ("/", ""),
            ("", ""),
            (".", ""),
        ] {
            assert_eq!(repository(root), expected, "{root}");
        }
    }

    proptest! {
        #[test]
        fn any_folder_has_a_short_name_without_separators(root in ".{0,300}") {
            let name = repository(&root);
            prop_assert!(name.chars().count() <= MOST && !name.contains('/'));
        }
    }
}
