//! The files of a repository that have at least one sign of being needed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use sqlx::PgPool;
use uuid::Uuid;

use super::moment::Moment;
use crate::error::Result;
use crate::retrieval::Samples;
use crate::retrieval::keys::Key;
use crate::searches::associations::{self, Association};
use crate::searches::rules::hints::{Signs, Telling, likeness, together};
use crate::searches::rules::names::{self, Names};
use crate::searches::rules::repository::file_id;
use crate::searches::settings::Rules;
use crate::sharing::apart;

/// The maximum number of words or identifiers of a query that are used.
const MOST_NAMES: usize = 24;
/// The maximum number of files of a repository that are counted to find out how common a word is.
const MOST_COUNTED: i64 = 4_000;
/// The maximum number of files that are found by the words of their paths, and by having been touched together with
/// others.
const MOST_BY_SIGN: usize = 500;
/// The maximum number of files that are ranked.
const MOST_FILES: i64 = 1_000;
/// The maximum number of files whose contents are compared: those that are best by all other signs.
const MOST_READ: usize = 100;
/// The maximum number of sessions, the latest ones, whose view of a file's contents is used.
const MOST_VIEWS: i64 = 4;
/// The maximum number of files whose contents are compared to find out how common an identifier is.
const SAMPLE: i64 = 100;
/// The maximum number of associations of similar queries that are read.
const MOST_LEARNED: i64 = 50;
/// The maximum number of views of the current files, the latest ones, that are used to find files touched together
/// with them.
const MOST_SESSIONS: i64 = 100;
/// The maximum number of rows of files touched together that are read.
const MOST_TOGETHER: i64 = 20_000;
/// The share of files beyond which an identifier that they contain is ignored.
const COMMON: f64 = 0.5;

/// A file with its signs.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: String,
    pub(super) signs: Signs,
    /// The association that is the strongest sign, if there is one.
    pub(super) learned: Option<Association>,
}

/// Reads the files that have at least one sign. What takes time in proportion to the number of files runs on a thread that
/// serves no requests.
pub(super) struct Candidates<'a> {
    db: &'a PgPool,
    project: &'a Arc<str>,
    moment: &'a Arc<Moment>,
    names: Names,
}

impl<'a> Candidates<'a> {
    /// Finds the files with at least one sign in the repository of the question. Without a repository, these are only
    /// files that answered similar queries anywhere in the project.
    pub(super) async fn find(
        db: &'a PgPool,
        samples: &Arc<Samples>,
        project: &'a Arc<str>,
        rules: &Rules,
        query: &str,
        moment: &'a Arc<Moment>,
    ) -> Result<Vec<File>> {
        let names = Names::of(project, &moment.repository);
        let this = Self { db, project, moment, names };
        let repository = Some(moment.repository.as_str()).filter(|repository| !repository.is_empty());
        let near = associations::find(db, samples, project, query, repository, MOST_LEARNED, rules).await?;
        let words = limited(this.names.words(query));
        let mut files = this.learned(&words, near);
        if repository.is_none() {
            let words = Telling::new(words.into_iter().map(|word| (word, 0)), 1, 1.0);
            let files = this.compare_paths(files, words).await;
            return Ok(files.into_iter().map(|(_, file)| file).collect());
        }
        let (files_of_repository, frequencies) = this.frequencies_of_words(&words).await?;
        let together = this.together().await?;
        let rarest = rarest(&frequencies);
        this.add_touched(&mut files, &together, &rarest).await?;
        let files = this.compare_paths(files, Telling::new(frequencies, files_of_repository, 1.0)).await;
        Ok(this.with_contents(files, limited(this.names.identifiers(query))).await?)
    }

    /// Returns the files that answered similar queries, each with its best association.
    fn learned(&self, words: &[Key], near: Vec<Association>) -> HashMap<Uuid, File> {
        let words: BTreeSet<Key> = words.iter().copied().collect();
        let mut files: HashMap<Uuid, File> = HashMap::new();
        for association in near {
            let learned = likeness(&words, &self.names.words(&association.query));
            let file = file_id(&self.moment.repository, &association.path);
            let same_root = association.root.as_deref().is_some_and(|root| root == self.moment.root);
            let file = files.entry(file).or_insert_with(|| File {
                path: association.path.clone(),
                signs: Signs::default(),
                learned: None,
            });
            file.signs.same_root |= same_root;
            // The most similar queries come first, and of equally similar ones the one with the greater weight.
            if learned > file.signs.learned || file.learned.is_none() {
                file.signs.learned = learned;
                file.learned = Some(association);
            }
        }
        files
    }

    /// Counts the files of the repository, and those with each of these words in their paths, up to a limit.
    async fn frequencies_of_words(&self, words: &[Key]) -> sqlx::Result<(usize, Vec<(Key, usize)>)> {
        const FILES: &str = "
            select count(distinct file_id) from (
                select file_id from touched_files where project = $1 and repository = $2 limit $3) counted";
        const HAVING: &str = "
            select wanted.word, (
                select count(distinct counted.file_id) from (
                    select f.file_id from touched_files f where f.project = $1 and f.words @> (wanted.word || $4) limit $3
                ) counted)
            from unnest($2::int[]) as wanted (word)";
        let files: i64 = sqlx::query_scalar(FILES)
            .bind(&**self.project)
            .bind(&self.moment.repository)
            .bind(MOST_COUNTED)
            .fetch_one(self.db)
            .await?;
        let query = sqlx::query_as(HAVING).bind(&**self.project).bind(words).bind(MOST_COUNTED);
        let having: Vec<(Key, i64)> = query.bind(self.names.of_project()).fetch_all(self.db).await?;
        let count = |count| usize::try_from(count).unwrap_or_default();
        Ok((count(files), having.into_iter().map(|(word, having)| (word, count(having))).collect()))
    }

    /// Returns how strongly files belong to the current ones, because they were touched in the same turns.
    async fn together(&self) -> sqlx::Result<HashMap<Uuid, f64>> {
        const SQL: &str = "
            select f.thread_id as thread, f.file_id as file, f.turns from touched_files f
            where f.project = $1 and f.thread_id = any(array(
                select g.thread_id from touched_files g where g.project = $1 and g.file_id = any($2)
                order by g.touched_at desc limit $3))
            limit $4";
        let at_hand = &self.moment.at_hand;
        if at_hand.is_empty() {
            return Ok(HashMap::new());
        }
        let query =
            sqlx::query_as(SQL).bind(&**self.project).bind(at_hand).bind(MOST_SESSIONS).bind(MOST_TOGETHER);
        let rows: Vec<Touched> = query.fetch_all(self.db).await?;
        let moment = Arc::clone(self.moment);
        Ok(apart(self.project, move || belonging(&rows, &moment.at_hand)).await)
    }

    /// Adds the files that were touched together with the current ones, were named in the session, or have one of
    /// these words in their paths.
    async fn add_touched(
        &self,
        files: &mut HashMap<Uuid, File>,
        together: &HashMap<Uuid, f64>,
        words: &[Key],
    ) -> sqlx::Result<()> {
        const SQL: &str = "
            select f.file_id, f.path, bool_or(f.root = $6) from touched_files f
            where f.project = $1 and f.repository = $2 and not f.gone
                and (f.file_id = any($3) or f.name = any($4) or f.words && $5 and f.words @> $8)
            group by f.file_id, f.path order by max(f.touched_at) desc, f.file_id limit $7";
        let mut ids: Vec<_> = together.iter().collect();
        ids.sort_by(|(one, a), (other, b)| b.total_cmp(a).then_with(|| one.cmp(other)));
        let ids = ids.into_iter().map(|(id, _)| *id).take(MOST_BY_SIGN).chain(files.keys().copied());
        let names: Vec<Key> = self.moment.names.iter().copied().collect();
        let rows: Vec<(Uuid, String, bool)> = sqlx::query_as(SQL)
            .bind(&**self.project)
            .bind(&self.moment.repository)
            .bind(ids.collect::<Vec<_>>())
            .bind(names)
            .bind(words)
            .bind(&self.moment.root)
            .bind(MOST_FILES)
            .bind(self.names.of_project())
            .fetch_all(self.db)
            .await?;
        for (id, path, same_root) in rows {
            let file =
                files.entry(id).or_insert_with(|| File { path, signs: Signs::default(), learned: None });
            file.signs.same_root |= same_root;
            file.signs.together = together.get(&id).copied().unwrap_or_default();
        }
        Ok(())
    }

    /// Compares the paths of files with the words of the query, and their names with the names that the session was
    /// told. Returns the files that are best by all signs so far first.
    async fn compare_paths(&self, files: HashMap<Uuid, File>, words: Telling) -> Vec<(Uuid, File)> {
        let (names, moment) = (self.names.clone(), Arc::clone(self.moment));
        let compare = move || {
            let compared = files.into_iter().map(|(id, mut file)| {
                let has = names.words(&file.path);
                file.signs.path = words.share(|word| has.contains(&word));
                file.signs.named = moment.names.contains(&names.file(&file.path));
                (file.signs.score(moment.turn), id, file)
            });
            let mut files: Vec<_> = compared.collect();
            files.sort_by(|(a, one, _), (b, other, _)| b.total_cmp(a).then_with(|| one.cmp(other)));
            files.into_iter().map(|(_, id, file)| (id, file)).collect()
        };
        apart(self.project, compare).await
    }

    /// Compares the contents of the first files with the identifiers of the query.
    async fn with_contents(
        &self,
        mut files: Vec<(Uuid, File)>,
        identifiers: Vec<Key>,
    ) -> sqlx::Result<Vec<File>> {
        const CONTENTS: &str = "
            select wanted.id, newest.identifiers from unnest($2::uuid[]) as wanted (id)
            cross join lateral (
                select f.identifiers from touched_files f where f.project = $1 and f.file_id = wanted.id
                order by f.touched_at desc limit $3
            ) newest";
        const OTHERS: &str = "
            select file_id, identifiers from touched_files
            where project = $1 and repository = $2 and identifiers <> '' order by file_id limit $3";
        if identifiers.is_empty() {
            return Ok(files.into_iter().map(|(_, file)| file).collect());
        }
        let read: Vec<_> = files.iter().map(|(id, _)| *id).take(MOST_READ).collect();
        let query = sqlx::query_as(CONTENTS).bind(&**self.project).bind(&read).bind(MOST_VIEWS);
        let contents = query.fetch_all(self.db).await?;
        let query = sqlx::query_as(OTHERS).bind(&**self.project).bind(&self.moment.repository).bind(SAMPLE);
        let sample = query.fetch_all(self.db).await?;
        let compare = move || {
            let (contents, sample) = (having(&identifiers, contents), having(&identifiers, sample));
            let count = |identifier: &Key| sample.values().filter(|has| has.contains(identifier)).count();
            let frequencies = identifiers.iter().map(|identifier| (*identifier, count(identifier)));
            let telling = Telling::new(frequencies, sample.len(), COMMON);
            for (id, file) in &mut files {
                if let Some(has) = contents.get(id) {
                    file.signs.content = telling.share(|identifier| has.contains(&identifier));
                }
            }
            files.into_iter().map(|(_, file)| file).collect()
        };
        Ok(apart(self.project, compare).await)
    }
}

/// The turns of a thread in which it touched a file.
#[derive(sqlx::FromRow)]
struct Touched {
    thread: Uuid,
    file: Uuid,
    turns: Vec<i32>,
}

/// Returns how strongly files belong to the current ones, the files `at_hand`.
fn belonging(rows: &[Touched], at_hand: &[Uuid]) -> HashMap<Uuid, f64> {
    let mut turns_at_hand: HashMap<Uuid, usize> = HashMap::new();
    let mut by_thread: HashMap<Uuid, Vec<(Uuid, HashSet<i32>)>> = HashMap::new();
    for Touched { thread, file, turns } in rows.iter().filter(|row| at_hand.contains(&row.file)) {
        let turns: HashSet<_> = turns.iter().copied().collect();
        *turns_at_hand.entry(*file).or_default() += turns.len();
        by_thread.entry(*thread).or_default().push((*file, turns));
    }
    let mut both: HashMap<(Uuid, Uuid), usize> = HashMap::new();
    for Touched { thread, file, turns } in rows {
        let of_thread = by_thread.get(thread).into_iter().flatten();
        for (at_hand, their_turns) in of_thread.filter(|(at_hand, _)| at_hand != file) {
            let shared = turns.iter().filter(|turn| their_turns.contains(turn)).count();
            if shared > 0 {
                *both.entry((*file, *at_hand)).or_default() += shared;
            }
        }
    }
    let mut sums: HashMap<Uuid, f64> = HashMap::new();
    for ((file, at_hand), both) in both {
        *sums.entry(file).or_default() += together(both, turns_at_hand[&at_hand]);
    }
    sums
}

/// Returns as many of these names as are used.
fn limited(names: BTreeSet<Key>) -> Vec<Key> {
    names.into_iter().take(MOST_NAMES).collect()
}

/// Returns the rarest of these words, as many as keep the number of files with one of them within the limit.
fn rarest(frequencies: &[(Key, usize)]) -> Vec<Key> {
    let mut words: Vec<_> = frequencies.iter().filter(|(_, having)| *having > 0).collect();
    words.sort_by_key(|(word, having)| (*having, *word));
    let mut files = 0;
    let within = words.into_iter().take_while(|(_, having)| {
        files += having;
        files <= MOST_BY_SIGN
    });
    within.map(|(word, _)| *word).collect()
}

/// Returns which of these identifiers each file contains. `contents` has the files' identifiers as the database
/// stores them.
fn having(identifiers: &[Key], contents: Vec<(Uuid, Vec<u8>)>) -> HashMap<Uuid, HashSet<Key>> {
    let mut having: HashMap<Uuid, HashSet<Key>> = HashMap::new();
    for (file, packed) in contents {
        let has = having.entry(file).or_default();
        has.extend(identifiers.iter().filter(|identifier| names::is_among(**identifier, &packed)));
    }
    having
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_together_by_the_turns_that_they_share_in_each_thread() {
        let [one, other] = [1, 2].map(Uuid::from_u128);
        let [at_hand, beside, apart] = [3, 4, 5].map(Uuid::from_u128);
        let touched = |thread, file, turns: &[i32]| Touched { thread, file, turns: turns.to_vec() };
        let rows = [
            touched(one, at_hand, &[1, 2, 3]),
            touched(one, beside, &[2, 3, 4]),
            touched(other, at_hand, &[7]),
            touched(other, beside, &[7, 1]),
            // The same numbers are other turns in another thread.
            touched(other, apart, &[1, 2, 3]),
        ];
        let found = belonging(&rows, &[at_hand]);
        assert_eq!(found, HashMap::from([(beside, together(3, 4))]));
        let found = belonging(&rows, &[at_hand, beside]);
        let strengths = [(beside, together(3, 4)), (at_hand, together(3, 5)), (apart, together(1, 5))];
        assert_eq!(found, HashMap::from(strengths));
    }
}
