//! Similar records: the same question in other words, or the same program with another name in it.
//!
//! The question and the answer of a record are divided into words and pairs of adjacent words. The similarity of two
//! records is the share of these that both have (Jaccard), estimated by MinHash (Broder 1997): for each of 60 orders
//! of all words and pairs, a record has a number for the first one that it contains, and two records have the same
//! number as often as they are similar. Records that agree in all four numbers of one of 15 bands are compared. This
//! finds 98 of 100 pairs with a similarity of 0.7, and 62 of 100 with a similarity of 0.5.
//!
//! A record is only compared with records that were finalized before it, so that later records do not change the
//! result. The eight earlier records that are most similar are stored; of equally similar ones, the four oldest and the four
//! newest, because an export with conditions, or after an erasure, may have only one end of them. A row is left out if one
//! of them is in the export too and is at least as similar as requested. As with a split, writing a record costs nothing: the first
//! export that needs the comparison processes all records, some hundred at a time.

use std::collections::HashMap;
use std::mem::take;
use std::sync::Arc;

use sqlx::{FromRow, PgConnection, PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

use super::groups::Comparison;
use super::params::Common;
use super::progress::{self, PageSize, Record};
use super::selection::Selection;
use crate::retrieval::keys::{Key, literal};
use crate::retrieval::text::{Token, tokens};
use crate::sharing::apart;
use crate::types::Timestamp;

/// The default similarity from which records are left out.
const THRESHOLD: f64 = 0.8;
/// The minimum similarity that is stored.
const LEAST: f64 = 0.5;
/// The number of numbers in a band of a signature, and the number of bands.
const BANDS: (usize, usize) = (4, 15);
/// The number of numbers in a long band. The keys of long bands follow those of the bands, from the sixteenth on. They find nearly
/// all pairs with a similarity of 0.95, four of five with 0.9, and 7 of 100 with 0.7.
const LONG_BAND: usize = 12;
/// The number of numbers in a signature.
const NUMBERS: usize = BANDS.0 * BANDS.1;
/// The maximum number of records that one transaction compares.
const PAGE: i64 = 500;
/// Renews the planner's statistics, and the number of records after which that is done first, and then each time for ten
/// times as many. A planner that expects an empty table reads all of it for every record.
const STATISTICS: &str = "analyze near_texts, near_twins";
const FIRST_RENEWAL: usize = 1_000;
/// The maximum number of oldest and of newest earlier records that a record is compared with.
const COMPARED: i64 = 100;
/// The number of candidates of a record from which on those that are neither among the oldest nor among the newest ones lose the
/// keys of their bands and are found by those of their long bands alone. Of these, so many oldest and so many newest ones stay.
/// Otherwise the comparison of very many records of one pattern would take a time that grows with the square of their number.
const MANY: i64 = 4 * COMPARED;
/// The maximum number of records of a page whose candidates lose keys.
const THINNED: usize = 10;
/// The number of texts that have lost keys after which the index is cleaned of these keys.
const LEFT_OUT: u64 = 10_000;
/// The maximum number of similar earlier records that are stored for a record: so many for each order of equally similar
/// ones.
const NOTED: usize = 4;
/// The similarity of almost equal records, and how many of the oldest and of the newest ones suffice for the comparison with
/// later records.
const EQUALS: (f64, usize) = (0.95, 10);

/// The signature of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Signature(Vec<u32>);

impl Signature {
    /// Makes the signature of a text, if it contains words or signs.
    fn of(text: &str) -> Option<Self> {
        let lower = text.to_lowercase();
        let all: Vec<_> = tokens(&lower).map(Token::as_str).collect();
        let pairs = all.windows(2).map(|pair| feature(&[pair[0], " ", pair[1]]));
        let mut features: Vec<_> = all.iter().map(|token| feature(&[token])).chain(pairs).collect();
        features.sort_unstable();
        features.dedup();
        if features.is_empty() {
            return None;
        }
        let number = |order: u64| {
            let of = |feature: &u32| (mixed(order << 32 | u64::from(*feature)) >> 32) as u32;
            features.iter().map(of).min().unwrap_or_default()
        };
        Some(Self((0..NUMBERS as u64).map(number).collect()))
    }

    /// Returns the estimated similarity of two texts, from 0 to 1.
    fn likeness(&self, other: &Self) -> f64 {
        let same = self.0.iter().zip(&other.0).filter(|(one, other)| one == other).count();
        same as f64 / NUMBERS as f64
    }

    /// Returns the keys by which texts are found that may be similar: those of the bands, and then those of the long bands.
    fn bands(&self, project: &str, work: &str) -> Vec<Key> {
        let key = |(number, band): (usize, &[u32])| {
            let mut hash = crc32fast::Hasher::new();
            for part in [project, "\x1f", work, "\x1f"] {
                hash.update(part.as_bytes());
            }
            hash.update(&number.to_be_bytes());
            for number in band {
                hash.update(&number.to_be_bytes());
            }
            hash.finalize().cast_signed()
        };
        self.0.chunks(BANDS.0).chain(self.0.chunks(LONG_BAND)).enumerate().map(key).collect()
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|number| number.to_be_bytes()).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        Self(
            bytes
                .chunks_exact(4)
                .map(|number| u32::from_be_bytes([number[0], number[1], number[2], number[3]]))
                .collect(),
        )
    }
}

fn feature(parts: &[&str]) -> u32 {
    let mut hash = crc32fast::Hasher::new();
    for part in parts {
        hash.update(part.as_bytes());
    }
    hash.finalize()
}

/// Mixes the bits of a number (the finalizer of SplitMix64, Steele, Lea and Flood 2014), which never changes.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

/// Compares the records of a project that were finalized before `as_of` with earlier ones, unless that was already
/// done.
pub(super) async fn catch_up(
    db: &PgPool,
    project: &str,
    comparison: &Comparison,
    as_of: Timestamp,
) -> sqlx::Result<()> {
    const INSERT: &str = "
        insert into near_texts (project, work, record, completed_at, bands, signature)
        select $1, $2, record, completed_at, bands::integer[], signature
        from unnest($3::uuid[], $4::timestamptz[], $5::text[], $6::bytea[])
            as new (record, completed_at, bands, signature)
        on conflict do nothing";
    let Comparison { work, sql } = comparison;
    let of_project: Arc<str> = project.into();
    let (mut processed, mut size) = (0, PageSize::up_to(PAGE));
    let (mut left_out, mut renewal) = (0, FIRST_RENEWAL);
    while let Some(mut page) = progress::next_page::<Taught>(db, (project, work), sql, as_of, &size).await? {
        processed += page.records.len();
        let records = take(&mut page.records);
        let signed =
            apart(&of_project, move || records.into_iter().filter_map(signed).collect::<Vec<_>>()).await;
        let (mut ids, mut times, mut bands, mut signatures) = (vec![], vec![], vec![], vec![]);
        for (record, completed_at, signature) in signed {
            ids.push(record);
            times.push(completed_at);
            bands.push(literal(&signature.bands(project, work)));
            signatures.push(signature.to_bytes());
        }
        let query = sqlx::query(INSERT).bind(project).bind(work).bind(&ids);
        query.bind(times).bind(bands).bind(signatures).execute(&mut *page.transaction).await?;
        left_out += compare(&mut page.transaction, (project, work), &ids).await?;
        page.end(&mut size).await?;
        if processed >= renewal {
            progress::renew_statistics(db, processed, STATISTICS).await?;
            renewal = 10 * processed;
        }
        if left_out > LEFT_OUT {
            // Until then, every comparison finds them by their former keys, and passes over them.
            sqlx::query("vacuum near_texts").execute(db).await?;
            left_out = 0;
        }
    }
    progress::renew_statistics(db, processed, STATISTICS).await
}

/// The text of a record that is compared.
#[derive(Debug, FromRow)]
struct Taught {
    text: Option<String>,
}

/// Returns a record with the signature of its text, unless the text has no words.
fn signed(Record { record, completed_at, read }: Record<Taught>) -> Option<(Uuid, Timestamp, Signature)> {
    Some((record, completed_at, Signature::of(&read.text?)?))
}

/// An earlier record that may be similar to another.
#[derive(Debug, FromRow)]
struct Found {
    record: Uuid,
    signature: Vec<u8>,
    twin: Uuid,
    twin_signature: Vec<u8>,
    /// The number of earlier records that share a band with the record.
    candidates: i64,
}

/// Stores which earlier records are similar to these records. Returns how many texts are found by fewer keys, or not
/// at all, from now on.
async fn compare(
    connection: &mut PgConnection,
    (project, work): (&str, &str),
    records: &[Uuid],
) -> sqlx::Result<u64> {
    const FIND: &str = "
        select n.record, n.signature, twin.record as twin, twin.signature as twin_signature, twin.candidates
        from near_texts n
        cross join lateral (
            select * from (
                select t.*, count(*) over () as candidates,
                    row_number() over (order by is_close desc, t.completed_at, t.record) as first,
                    row_number() over (order by is_close desc, t.completed_at desc, t.record desc) as last
                from (
                    select t.record, t.signature, t.completed_at, t.bands && n.bands[16:] as is_close
                    from near_texts t
                    where t.project = $1 and t.work = $2 and t.bands && n.bands
                        and (t.completed_at, t.record) < (n.completed_at, n.record)
                ) t
            ) t
            where first <= $4 or last <= $4
        ) twin
        where n.project = $1 and n.work = $2 and n.record = any($3)
        order by n.record, twin.completed_at, twin.record";
    const NOTE: &str = "
        insert into near_twins (project, work, record, twin, likeness)
        select $1, $2, record, twin, likeness
        from unnest($3::uuid[], $4::uuid[], $5::float4[]) as new (record, twin, likeness)
        on conflict do nothing";
    const LEAVE: &str = "delete from near_texts where project = $1 and work = $2 and record = any($3)";
    const THIN: &str = "
        with spare as materialized (
            select record from (
                select t.record, cardinality(t.bands) < 16 as is_thin,
                    row_number() over (one order by t.completed_at, t.record) as first,
                    row_number() over (one order by t.completed_at desc, t.record desc) as last
                from near_texts n
                join near_texts t on t.project = $1 and t.work = $2 and t.bands && n.bands
                    and (t.completed_at, t.record) < (n.completed_at, n.record)
                where n.project = $1 and n.work = $2 and n.record = any($3)
                window one as (partition by n.record, cardinality(t.bands) < 16)
            ) t
            where least(first, last) > case when is_thin then $5 else $4 end
        ), gone as (
            delete from near_texts t using (select distinct record from spare) s
            where t.project = $1 and t.work = $2 and t.record = s.record and cardinality(t.bands) < 16
            returning t.record
        ), thinned as (
            update near_texts t set bands = t.bands[16:] from (select distinct record from spare) s
            where t.project = $1 and t.work = $2 and t.record = s.record and cardinality(t.bands) >= 16
            returning t.record
        )
        select (select count(*) from gone) + (select count(*) from thinned)";
    let query = sqlx::query_as(FIND).bind(project).bind(work).bind(records).bind(COMPARED);
    let found: Vec<Found> = query.fetch_all(&mut *connection).await?;
    let mut twins: HashMap<Uuid, Vec<(Uuid, f64)>> = HashMap::new();
    let mut crowded: Vec<Uuid> = Vec::new();
    for found in found {
        if found.candidates > MANY && crowded.last() != Some(&found.record) {
            crowded.push(found.record);
        }
        let [own, other] =
            [&found.signature, &found.twin_signature].map(|bytes| Signature::from_bytes(bytes));
        let likeness = own.likeness(&other);
        if likeness >= LEAST {
            twins.entry(found.record).or_default().push((found.twin, likeness));
        }
    }
    let (mut ids, mut of_twins, mut likenesses) = (vec![], vec![], vec![]);
    let mut spare: Vec<Uuid> = Vec::new();
    for (record, mut twins) in twins {
        let equal = twins.iter().filter(|(_, likeness)| *likeness >= EQUALS.0).map(|(twin, _)| *twin);
        // The record itself is the newest.
        let equal: Vec<_> = equal.chain([record]).collect();
        if equal.len() > 2 * EQUALS.1 {
            spare.extend(&equal[EQUALS.1..equal.len() - EQUALS.1]);
        }
        // The sorts are stable: of equally similar records, the oldest come first, and then the newest.
        twins.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let oldest: Vec<_> = twins.iter().take(NOTED).copied().collect();
        twins.reverse();
        twins.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let newest = twins.into_iter().filter(|twin| !oldest.contains(twin)).take(NOTED);
        for (twin, likeness) in oldest.iter().copied().chain(newest) {
            ids.push(record);
            of_twins.push(twin);
            #[expect(clippy::cast_possible_truncation, reason = "a share of 60")]
            likenesses.push(likeness as f32);
        }
    }
    let query = sqlx::query(NOTE).bind(project).bind(work).bind(ids).bind(of_twins).bind(likenesses);
    query.execute(&mut *connection).await?;
    let query = sqlx::query(LEAVE).bind(project).bind(work).bind(spare);
    let left = query.execute(&mut *connection).await?.rows_affected();
    if crowded.is_empty() {
        return Ok(left);
    }
    // Neighbors have the same candidates, so that a few from all over the page suffice.
    let crowded: Vec<_> = crowded.iter().step_by(crowded.len().div_ceil(THINNED)).copied().collect();
    let thinned = sqlx::query_scalar(THIN).bind(project).bind(work).bind(crowded).bind(COMPARED).bind(MANY);
    let thinned: i64 = thinned.fetch_one(connection).await?;
    Ok(left + thinned.unsigned_abs())
}

/// Deletes what a comparison has stored about records that are erased, in the transaction that erases them.
pub(super) async fn forget(
    connection: &mut PgConnection,
    project: &str,
    comparison: &Comparison,
    records: &[Uuid],
) -> sqlx::Result<()> {
    for sql in [
        "delete from near_texts where project = $1 and work = $2 and record = any($3)",
        "delete from near_twins where project = $1 and work = $2 and (record = any($3) or twin = any($3))",
    ] {
        let query = sqlx::query(sql).bind(project).bind(comparison.work).bind(records);
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Adds the condition that no older record among those that meet the `conditions` is similar to the row's record.
pub(super) fn push_unlike(
    query: &mut QueryBuilder<Postgres>,
    common: &Common,
    selection: &Selection<'_>,
    conditions: impl FnOnce(&mut QueryBuilder<Postgres>),
) {
    let (Selection { alias, comparison, .. }, record) = (selection, selection.record());
    query.push(format_args!(
        " and not exists (select from near_twins twin
            where twin.project = $1 and twin.record = {alias}.{record} and twin.work = "
    ));
    query.push_bind(comparison.map(|comparison| comparison.work)).push(" and twin.likeness >= ");
    #[expect(
        clippy::cast_possible_truncation,
        reason = "compared with a share of 60, which is kept as short"
    )]
    query.push_bind(common.near_threshold.unwrap_or(THRESHOLD) as f32);
    selection.push_meets(query, &format!("{alias}.{record} = twin.twin"), conditions);
    query.push(")");
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// Returns the similarity that signatures estimate.
    fn jaccard(one: &str, other: &str) -> f64 {
        let features = |text: &str| -> HashSet<String> {
            let all: Vec<_> = tokens(text).map(|token| token.as_str().to_owned()).collect();
            all.windows(2).map(|pair| pair.join(" ")).chain(all.iter().cloned()).collect()
        };
        let (one, other) = (features(one), features(other));
        one.intersection(&other).count() as f64 / one.union(&other).count() as f64
    }

    #[test]
    fn a_signature_is_the_same_for_ever() {
        // Databases contain signatures. If this test fails, a migration is needed.
        let signature = Signature::of("Create a fund").expect("it has words");
        assert_eq!(signature.0[..3], FIRST);
        assert_eq!(signature.bands("p", "near generations")[0], FIRST_BAND);
        assert_eq!(Signature::from_bytes(&signature.to_bytes()), signature);
        assert_eq!(Signature::of(" \n"), None);
    }

    const FIRST: [u32; 3] = [304_339_368, 1_596_268_925, 482_051_858];
    const FIRST_BAND: i32 = 1_554_372_881;

    proptest! {
        #[test]
        fn likeness_is_about_the_share_of_words_and_pairs_in_common(
            one in prop::collection::vec("[a-f]", 5..40), other in prop::collection::vec("[a-f]", 5..40),
        ) {
            let (one, other) = (one.join(" "), other.join(" "));
            let signature = |text: &str| Signature::of(text).expect("it has words");
            let estimate = signature(&one).likeness(&signature(&other));
            // Five standard deviations of a share of sixty.
            prop_assert!((estimate - jaccard(&one, &other)).abs() < 0.33);
            prop_assert!((signature(&one).likeness(&signature(&one)) - 1.0).abs() < f64::EPSILON);
        }
    }
}
