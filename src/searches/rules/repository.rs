//! Repositories: what the folders are clones of in which agents work. Clones of different people, and the worktrees of one,
//! share what was learned in them.

use uuid::Uuid;

use super::paths;
use crate::types::derived_id;

/// The most characters of a repository's name; a longer one is cut.
const MOST: usize = 200;
/// How the folder is named that holds a repository's worktrees, alone or after the name of the repository.
const WORKTREES: &str = "worktrees";

/// The name of the repository that `root` is a clone or a worktree of; empty where no folder is known.
///
/// It is the name of the folder. Of a folder among worktrees it is what these are named after (`app` of
/// `/src/app-worktrees/fix`), else the folder that they lie in (`app` of `/src/app/.worktrees/fix` and of
/// `/src/app/.claude/worktrees/fix`), else the last folder, as worktrees in hidden folders of a home may be of any repository.
#[must_use]
pub fn repository(root: &str) -> String {
    let root = paths::folder(root);
    let parts: Vec<&str> = root.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
    let name = parts.iter().enumerate().find_map(|(at, part)| owner(&parts[..at], part));
    let name = name.or_else(|| parts.last().copied()).unwrap_or_default();
    name.chars().take(MOST).collect()
}

/// The id of a file, the same in every clone of its repository.
#[must_use]
pub fn file_id(repository: &str, path: &str) -> Uuid {
    derived_id(&[b"file", repository.as_bytes(), path.as_bytes()])
}

/// Whose worktrees the folder called `part` holds, which lies in the folders `above`; none if it holds none, or does not say.
fn owner<'a>(above: &[&'a str], part: &'a str) -> Option<&'a str> {
    let before = part.strip_suffix(WORKTREES)?;
    let name = before.trim_end_matches(['-', '_', '.']);
    if !name.is_empty() {
        return Some(name).filter(|name| *name != before);
    }
    let outer = above.iter().rposition(|part| !part.starts_with('.'))?;
    // The folders of homes: `/home/jane/.codex/worktrees/4f2a/app`.
    let is_home = outer == 1 && matches!(above[0], "home" | "Users") || outer == 0 && above[0] == "root";
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
