//! Groups of records with the same texts, each of which is in one part of a [split](super::split).
//!
//! A record joins the group of an earlier record with the same question, or else of one with the same answer, and
//! otherwise starts a new group. An answer to very many questions (`submit`, `ls`) does not join them, and a record that
//! shares its question with one group and its answer with another is only in the first.
//!
//! Records are put into groups in the order in which they were finalized, and a group depends only on earlier records.
//! It therefore never changes, and exports with the same `as_of` have the same bytes. Writing a record costs nothing: the
//! first export that needs groups processes what was finalized since the last one, page by page.

use std::collections::HashMap;
use std::iter::once;

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::progress::{self, PageSize, Record};
use crate::types::Timestamp;

/// The number of records from which on an answer says nothing about what a record is about.
const COMMON: i64 = 20;
/// The maximum number of records that one transaction puts into groups.
const PAGE: i64 = 2_000;

/// The source of the texts of a domain's records.
#[derive(Debug)]
pub struct Source {
    /// The name of the domain.
    pub domain: &'static str,
    /// SQL that selects, from records of the project `$1`, `record`, `completed_at`, the hash `question`, and the array
    /// `answers` of the hashes of all its answers.
    /// The records are at most `$5`, of those that were finalized after the record (`$2`, `$3`) and before `$4`, in the order
    /// in which they were finalized. They are fewer if their answers and the KiB of their texts are some 20,000 together,
    /// because reviews wait for them.
    pub sql: &'static str,
    /// The comparisons by which similar records are found.
    pub comparisons: &'static [&'static Comparison],
}

/// A comparison of the records of a domain for [similar ones](super::near), by one of the texts that data sets make of them.
#[derive(Debug)]
pub struct Comparison {
    /// The name of the work.
    pub work: &'static str,
    /// SQL that selects, from the records that [`Source::sql`] describes in the same order and with
    /// the same parameters, `record`, `completed_at`, and as `text` the question together with the answer that the record
    /// teaches: the first 16,384 characters of each, because some hundred are read at once.
    pub sql: &'static str,
}

/// The hashes of the texts of a record that is put into a group.
#[derive(Debug, Clone, sqlx::FromRow)]
struct Hashes {
    question: i64,
    answers: Vec<i64>,
}

impl Hashes {
    /// Returns all hashes, the question first and each answer once.
    fn all(&self) -> impl Iterator<Item = i64> {
        let mut answers = self.answers.clone();
        answers.sort_unstable();
        answers.dedup();
        once(self.question).chain(answers)
    }
}

/// What is known of a text.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// The group of the first record that contains the text.
    group: i64,
    /// The number of records that contain the text, counted up to [`COMMON`].
    records: i64,
}

/// Returns the group of each record, and updates what is known of its texts.
fn assign(records: &[Record<Hashes>], known: &mut HashMap<i64, Known>) -> Vec<i64> {
    let group = |Record { read: hashes, .. }: &Record<Hashes>| {
        let of_question = known.get(&hashes.question).map(|text| text.group);
        let rarest = || {
            let answers = hashes.all().skip(1).filter_map(|answer| known.get(&answer));
            answers
                .filter(|text| text.records < COMMON)
                .min_by_key(|text| text.records)
                .map(|text| text.group)
        };
        let group = of_question.or_else(rarest).unwrap_or(hashes.question);
        for text in hashes.all() {
            known.entry(text).or_insert(Known { group, records: 0 }).records += 1;
        }
        group
    };
    records.iter().map(group).collect()
}

/// Puts the records of a project that were finalized before `as_of` into groups, unless they already are in one.
pub(super) async fn catch_up(
    db: &PgPool,
    project: &str,
    source: &Source,
    as_of: Timestamp,
) -> sqlx::Result<()> {
    const KNOWN: &str = "
        select text.hash, first.split_group, (
            select count(*) from (select from split_texts t where t.hash = text.hash and t.project = $1 limit $3) found
        )
        from unnest($2::bigint[]) as text (hash)
        cross join lateral (
            select t.split_group from split_texts t where t.hash = text.hash and t.project = $1
            order by t.completed_at, t.record limit 1
        ) first";
    const INSERT: &str = "
        insert into split_texts (project, domain, record, hash, completed_at, split_group)
        select $1, $2, record, hash, completed_at, split_group
        from unnest($3::uuid[], $4::bigint[], $5::timestamptz[], $6::bigint[]) as new (record, hash, completed_at, split_group)
        on conflict do nothing";
    let work = (project, source.domain);
    let (mut processed, mut size) = (0, PageSize::up_to(PAGE));
    while let Some(mut page) = progress::next_page::<Hashes>(db, work, source.sql, as_of, &size).await? {
        processed += page.records.len();
        let mut texts: Vec<_> = page.records.iter().flat_map(|record| record.read.all()).collect();
        texts.sort_unstable();
        texts.dedup();
        let query = sqlx::query_as(KNOWN).bind(project).bind(&texts).bind(COMMON);
        let known: Vec<(i64, i64, i64)> = query.fetch_all(&mut *page.transaction).await?;
        let mut known =
            known.into_iter().map(|(text, group, records)| (text, Known { group, records })).collect();
        let groups = assign(&page.records, &mut known);
        let (mut ids, mut hashes, mut times, mut of_texts) = (vec![], vec![], vec![], vec![]);
        for (record, group) in page.records.iter().zip(groups) {
            for text in record.read.all() {
                ids.push(record.record);
                hashes.push(text);
                times.push(record.completed_at);
                of_texts.push(group);
            }
        }
        let query = sqlx::query(INSERT).bind(project).bind(source.domain).bind(ids).bind(hashes);
        query.bind(times).bind(of_texts).execute(&mut *page.transaction).await?;
        page.end(&mut size).await?;
    }
    progress::renew_statistics(db, processed, "analyze split_texts").await
}

/// Deletes the texts of records that are erased, in the transaction that erases them.
pub(super) async fn forget(
    connection: &mut PgConnection,
    project: &str,
    source: &Source,
    records: &[Uuid],
) -> sqlx::Result<()> {
    const SQL: &str = "delete from split_texts where project = $1 and domain = $2 and record = any($3)";
    sqlx::query(SQL).bind(project).bind(source.domain).bind(records).execute(connection).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(question: i64, answers: &[i64]) -> Record<Hashes> {
        let read = Hashes { question, answers: answers.to_vec() };
        Record { record: Uuid::nil(), completed_at: Timestamp::now(), read }
    }

    fn groups(records: &[(i64, &[i64])]) -> Vec<i64> {
        let records: Vec<_> = records.iter().map(|(question, answers)| record(*question, answers)).collect();
        assign(&records, &mut HashMap::new())
    }

    #[test]
    fn records_with_the_same_question_or_answer_are_in_one_group() {
        assert_eq!(
            groups(&[(1, &[10]), (2, &[20]), (1, &[30]), (3, &[30]), (4, &[40, 20])]),
            [1, 2, 1, 1, 2]
        );
    }

    #[test]
    fn the_question_decides_where_question_and_answer_stand_in_two_groups() {
        assert_eq!(groups(&[(1, &[10]), (2, &[20]), (2, &[10])]), [1, 2, 2]);
    }

    #[test]
    fn an_answer_to_very_many_questions_joins_no_more_of_them() {
        let records: Vec<_> = (1..=30).map(|question| record(question, &[99])).collect();
        let groups = assign(&records, &mut HashMap::new());
        assert_eq!(groups[..20], [1; 20]);
        assert_eq!(groups[20..], (21..=30).collect::<Vec<_>>());
    }

    proptest! {
        /// A group never changes because of what comes later, and does not depend on where pages end.
        #[test]
        fn groups_are_the_same_however_records_are_paged(
            records in prop::collection::vec((0..8_i64, prop::collection::vec(100..108_i64, 0..4)), 0..40),
            end in 0..40_usize,
        ) {
            let records: Vec<_> = records.iter().map(|(question, answers)| record(*question, answers)).collect();
            let whole = assign(&records, &mut HashMap::new());
            let (first, second) = records.split_at(end.min(records.len()));
            let mut known = HashMap::new();
            let paged = [assign(first, &mut known), assign(second, &mut known)].concat();
            prop_assert_eq!(whole, paged);
        }
    }
}
