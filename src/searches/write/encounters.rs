//! What agents encounter: the files that they read or change, with the identifiers in them, and the file names that
//! they are told. Hints are found by it.
//!
//! A touched file is one row of its thread, in however many turns it was touched. Everything is limited: the oldest
//! files of a thread, the oldest threads of a file, and the oldest names of a thread are deleted first.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use sqlx::PgConnection;
use uuid::Uuid;

use crate::db::insert::{self, columns};
use crate::retrieval::keys::{self, Key};
use crate::searches::rules::learner::AgentThread;
use crate::searches::rules::names::{Names, packed, unpacked};
use crate::searches::rules::repository::{file_id, repository};
use crate::types::Timestamp;

/// The maximum number of files that are stored for one thread.
const MOST_FILES: i64 = 1_000;
/// The maximum number of threads that are stored for one file.
const MOST_THREADS: i64 = 32;
/// The maximum number of turns that are stored for a file of a thread.
const MOST_TURNS: usize = 64;
/// The maximum number of file names that are stored for one thread.
const MOST_NAMES: usize = 16_384;
/// The maximum number of file names that one unit of work adds to a thread. Of too many stored names, the newest half
/// stays, so that they need not be counted at each write.
const MOST_NEW_NAMES: usize = MOST_NAMES / 2;

/// What the threads of a unit of work have encountered.
#[derive(Debug, Default)]
pub(super) struct Encounters {
    touched: BTreeMap<(Uuid, Uuid), Touched>,
    /// How many files of each thread there are in `touched`.
    files: HashMap<Uuid, i64>,
    /// The folders in which threads work, each with the name of its repository.
    roots: HashMap<Arc<str>, Arc<str>>,
    named: BTreeMap<Uuid, BTreeSet<Key>>,
}

/// What a thread has done with a file.
#[derive(Debug)]
struct Touched {
    repository: Arc<str>,
    root: Arc<str>,
    path: String,
    turns: BTreeSet<i32>,
    identifiers: BTreeSet<Key>,
    at: Option<Timestamp>,
}

impl Encounters {
    /// Adds a file that a thread, which works in `root`, has read or changed in a turn. Of more files than are
    /// stored of a thread, the first ones count.
    pub(super) fn touch(
        &mut self,
        thread: Uuid,
        root: &str,
        path: &str,
        (turn, at): (i32, Timestamp),
        identifiers: impl IntoIterator<Item = Key>,
    ) {
        let (root, repository) = self.root(root);
        let touched = match self.touched.entry((thread, file_id(&repository, path))) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let files = self.files.entry(thread).or_default();
                if *files == MOST_FILES {
                    return;
                }
                *files += 1;
                new.insert(Touched {
                    repository,
                    root: Arc::clone(&root),
                    path: path.to_owned(),
                    turns: BTreeSet::new(),
                    identifiers: BTreeSet::new(),
                    at: None,
                })
            }
        };
        touched.turns.insert(turn);
        touched.identifiers.extend(identifiers);
        touched.at = touched.at.max(Some(at));
        touched.root = root;
    }

    /// Returns a folder and the name of its repository.
    fn root(&mut self, root: &str) -> (Arc<str>, Arc<str>) {
        if let Some((root, repository)) = self.roots.get_key_value(root) {
            return (Arc::clone(root), Arc::clone(repository));
        }
        let (root, repository): (Arc<str>, Arc<str>) = (root.into(), repository(root).into());
        self.roots.insert(Arc::clone(&root), Arc::clone(&repository));
        (root, repository)
    }

    /// Adds the names of files that a thread was told.
    pub(super) fn name(&mut self, thread: Uuid, names: BTreeSet<Key>) {
        if !names.is_empty() {
            self.named.entry(thread).or_default().extend(names);
        }
    }

    /// Returns whether more names that a thread was told are of use. Too many are not stored.
    pub(super) fn has_room_for_names(&self, thread: Uuid) -> bool {
        self.named.get(&thread).is_none_or(|names| names.len() < MOST_NEW_NAMES)
    }

    /// Writes what was encountered. The threads are locked.
    pub(super) async fn save(
        mut self,
        connection: &mut PgConnection,
        project: &str,
        threads: &mut BTreeMap<Uuid, AgentThread>,
    ) -> sqlx::Result<()> {
        if !self.touched.is_empty() {
            let known = self.add_known(connection, project).await?;
            self.write_touched(connection, project).await?;
            self.forget_oldest(connection, project, &known).await?;
        }
        self.write_names(connection, project, threads).await
    }

    /// Adds what is already stored about these threads and files. Returns which of the files were stored.
    async fn add_known(
        &mut self,
        connection: &mut PgConnection,
        project: &str,
    ) -> sqlx::Result<BTreeSet<(Uuid, Uuid)>> {
        const SQL: &str = "
            select f.thread_id, f.file_id, f.turns, f.identifiers, f.touched_at from touched_files f
            join unnest($2::uuid[], $3::uuid[]) as wanted (thread_id, file_id)
                on wanted.thread_id = f.thread_id and wanted.file_id = f.file_id
            where f.project = $1";
        type Row = (Uuid, Uuid, Vec<i32>, Vec<u8>, Timestamp);
        let (threads, files): (Vec<_>, Vec<_>) = self.touched.keys().copied().unzip();
        let rows: Vec<Row> =
            sqlx::query_as(SQL).bind(project).bind(threads).bind(files).fetch_all(connection).await?;
        let mut known = BTreeSet::new();
        for (thread, file, turns, identifiers, at) in rows {
            if let Some(touched) = self.touched.get_mut(&(thread, file)) {
                touched.turns.extend(turns);
                touched.identifiers.extend(unpacked(&identifiers));
                touched.at = touched.at.max(Some(at));
                known.insert((thread, file));
            }
        }
        Ok(known)
    }

    async fn write_touched(&self, connection: &mut PgConnection, project: &str) -> sqlx::Result<()> {
        static SQL: LazyLock<String> = LazyLock::new(|| {
            format!(
                "insert into touched_files as f (project, {names}) select $1, {values} from (select {unnested}) new
                on conflict (thread_id, file_id, project) do update
                set root = excluded.root, turns = excluded.turns, identifiers = excluded.identifiers,
                    touched_at = excluded.touched_at, gone = false",
                names = insert::names::<Columns>(),
                values = insert::values::<Columns>("new"),
                unnested = insert::unnested::<Columns>(2),
            )
        });
        let mut names: HashMap<&str, Names> = HashMap::new();
        let rows = self.touched.iter().map(|((thread, file), touched)| {
            let repository = &*touched.repository;
            let names = names.entry(repository).or_insert_with(|| Names::of(project, repository));
            Row { thread: *thread, file: *file, touched, names: names.clone() }
        });
        let rows: Vec<_> = rows.collect();
        let parameters = insert::parameters(project, |parameters| {
            <Columns as insert::Columns>::bind_all(&rows, parameters)
        })?;
        sqlx::query_with(SQL.as_str(), parameters).execute(connection).await?;
        Ok(())
    }

    /// Deletes rows beyond the limits of the threads and files that have gained a row. Rows that another transaction
    /// has locked are left for the next time. Each step is materialized: the planner takes a new table to be empty, and would
    /// number all rows anew for each of them.
    async fn forget_oldest(
        &self,
        connection: &mut PgConnection,
        project: &str,
        known: &BTreeSet<(Uuid, Uuid)>,
    ) -> sqlx::Result<()> {
        const SQL: &str = "
            with placed as materialized (
                select thread_id, file_id from (
                    select thread_id, file_id,
                        row_number() over (partition by thread_id order by touched_at desc, file_id) as place
                    from touched_files where project = $1 and thread_id = any($2)
                ) placed where place > $4
                union
                select thread_id, file_id from (
                    select thread_id, file_id,
                        row_number() over (partition by file_id order by touched_at desc, thread_id) as place
                    from touched_files where project = $1 and file_id = any($3)
                ) placed where place > $5
            ),
            locked as materialized (
                select f.thread_id, f.file_id
                from placed join touched_files f
                    on f.project = $1 and f.thread_id = placed.thread_id and f.file_id = placed.file_id
                for update of f skip locked
            )
            delete from touched_files f using locked
            where f.project = $1 and f.thread_id = locked.thread_id and f.file_id = locked.file_id";
        let new = || self.touched.keys().filter(|key| !known.contains(key));
        let threads: BTreeSet<Uuid> = new().map(|(thread, _)| *thread).collect();
        let files: BTreeSet<Uuid> = new().map(|(_, file)| *file).collect();
        if threads.is_empty() {
            return Ok(());
        }
        sqlx::query(SQL)
            .bind(project)
            .bind(threads.into_iter().collect::<Vec<_>>())
            .bind(files.into_iter().collect::<Vec<_>>())
            .bind(MOST_FILES)
            .bind(MOST_THREADS)
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn write_names(
        self,
        connection: &mut PgConnection,
        project: &str,
        threads: &mut BTreeMap<Uuid, AgentThread>,
    ) -> sqlx::Result<()> {
        const INSERT: &str = "
            insert into named_files (project, thread_id, id, names)
            select $1, new.thread_id, new.id, new.names::int[]
            from unnest($2::uuid[], $3::uuid[], $4::text[]) as new (thread_id, id, names)";
        const FORGET: &str = "
            delete from named_files where project = $1 and thread_id = $2 and id = any(array(
                select id from (
                    select id, sum(cardinality(names)) over (order by id desc) as names
                    from named_files where project = $1 and thread_id = $2
                ) newest where newest.names > $3))";
        let mut rows = (Vec::new(), Vec::new(), Vec::new());
        for (id, names) in self.named {
            let Some(thread) = threads.get_mut(&id) else { continue };
            let names: Vec<_> = names.into_iter().take(MOST_NEW_NAMES).collect();
            let count = i32::try_from(names.len()).unwrap_or(i32::MAX);
            if thread.names.saturating_add(count) > i32::try_from(MOST_NAMES).unwrap_or(i32::MAX) {
                let left = i64::try_from(MOST_NEW_NAMES).unwrap_or(i64::MAX);
                let query = sqlx::query(FORGET).bind(project).bind(id).bind(left);
                query.execute(&mut *connection).await?;
                thread.names = i32::try_from(MOST_NEW_NAMES).unwrap_or(i32::MAX);
            }
            thread.names = thread.names.saturating_add(count);
            rows.0.push(id);
            rows.1.push(Uuid::now_v7());
            rows.2.push(keys::literal(&names));
        }
        if !rows.0.is_empty() {
            let query = sqlx::query(INSERT).bind(project).bind(rows.0).bind(rows.1).bind(rows.2);
            query.execute(connection).await?;
        }
        Ok(())
    }
}

/// A row to be written.
struct Row<'a> {
    thread: Uuid,
    file: Uuid,
    touched: &'a Touched,
    names: Names,
}

impl Row<'_> {
    /// Returns the keys of the words of the path, with those of the project.
    fn words(&self) -> Vec<Key> {
        self.names.of_project().into_iter().chain(self.names.words(&self.touched.path)).collect()
    }
}

columns! {
    /// The columns of a touched file.
    struct Columns<'a>(Row<'a>);
    |row| {
        "thread_id": "uuid" = row.thread,
        "file_id": "uuid" = row.file,
        "repository": "text" = &*row.touched.repository,
        "root": "text" = &*row.touched.root,
        "path": "text" = row.touched.path.as_str(),
        "name": "int" = row.names.file(&row.touched.path),
        "words": "text" as "int[]" = keys::literal(&row.words()),
        "turns": "text" as "int[]" = keys::literal(&row.touched.latest_turns()),
        "identifiers": "bytea" = packed(&row.touched.identifiers),
        "touched_at": "timestamptz" = row.touched.at,
    }
}

impl Touched {
    fn latest_turns(&self) -> Vec<i32> {
        let surplus = self.turns.len().saturating_sub(MOST_TURNS);
        self.turns.iter().skip(surplus).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::agents::{self, Passage, PassageSource};
    use crate::searches::settings::{Rules, SearchSettings};
    use crate::searches::write::UnitOfWork;

    fn told(texts: Vec<String>) -> agents::Entry {
        let passage = |text| Passage { source: PassageSource::Answer("t".to_owned()), text };
        agents::Entry {
            at: Some(Timestamp::now()),
            passages: texts.into_iter().map(passage).collect(),
            ..agents::Entry::default()
        }
    }

    #[tokio::test]
    async fn what_a_thread_is_told_is_read_with_pauses_and_until_there_are_as_many_names_as_are_stored() {
        let rules = Rules::new(&SearchSettings::default(), &SearchSettings::default());
        let (thread, names) = (Uuid::nil(), Names::of("p", "r"));
        let mut unit = UnitOfWork::of("p", &rules, BTreeMap::new());
        let same = told(vec!["a.rs ".repeat(10_000); 100]);
        assert!(unit.hear(thread, &same, &names).now_or_never().is_none(), "there is a pause");

        let name = |text: u32, number: u32| format!("{text}_{number}.rs ");
        let text = |text: u32| (0..5_000).map(|number| name(text, number)).collect::<String>();
        unit.hear(thread, &told((0..10).map(text).collect()), &names).await;
        let heard = unit.encounters().named[&thread].len();
        assert!((MOST_NEW_NAMES..MOST_NEW_NAMES + 5_000).contains(&heard), "{heard} names");
    }
}
