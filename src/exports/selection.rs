//! The selection of an export's rows: those that meet its conditions, without those that repeat too much of older ones.

use sqlx::{Postgres, QueryBuilder};

use super::groups::Comparison;
use super::near::push_unlike;
use super::params::Common;
use super::text::Text;

/// The rows of which an export selects some, as SQL.
#[derive(Debug, Clone, Copy)]
pub struct Selection<'a> {
    /// The tables, with their aliases.
    pub from: &'a str,
    /// The table with the columns that are named here.
    pub table: &'a str,
    /// The alias of that table.
    pub alias: &'a str,
    /// The columns by which the rows are ordered: the time when the record was finalized, its id, and the row's number if
    /// a record can have several rows.
    pub key: &'a [&'a str],
    /// The condition that a row `older` of that table is equal to the row. It contains whatever the index on the hash of equal
    /// rows needs, so that the index finds them whatever the planner expects of other conditions.
    pub equal: &'a str,
    /// The answer of a row, if it has one.
    pub answer: Option<Text<'a>>,
    /// The comparison by which similar rows are found, if they can be.
    pub comparison: Option<&'static Comparison>,
}

impl Selection<'_> {
    /// Returns the column with the id of a row's record.
    pub(super) fn record(&self) -> &str {
        self.key[1]
    }

    /// Returns the columns of the key in the table with this alias, separated by commas.
    fn key_of(&self, alias: &str) -> String {
        let columns = self.key.iter().map(|column| format!("{alias}.{column}"));
        columns.collect::<Vec<_>>().join(", ")
    }

    /// Adds the condition that no older row that meets the `conditions` is equal, so that only the oldest of equal rows is
    /// exported.
    ///
    /// The rows are looked at from the newest to the oldest. If many do not meet the conditions, each of them is passed over
    /// for at most one row, and not for every later one.
    pub fn push_oldest(
        &self,
        query: &mut QueryBuilder<Postgres>,
        conditions: impl FnOnce(&mut QueryBuilder<Postgres>),
    ) {
        let Self { table, alias, equal, key, .. } = self;
        query.push(format_args!(
            " and not exists (select from (
                select from {table} older where older.project = $1 and {equal} and ({}) < ({})",
            self.key_of("older"),
            self.key_of(alias),
        ));
        self.push_meets(query, &format!("({}) = ({})", self.key_of(alias), self.key_of("older")), conditions);
        let newest: Vec<_> = key.iter().map(|column| format!("older.{column} desc")).collect();
        query.push(format_args!(" order by {} limit 1) nearest)", newest.join(", ")));
    }

    /// Adds the condition that a row of which this much is known is among the rows and meets the `conditions`.
    pub(super) fn push_meets(
        &self,
        query: &mut QueryBuilder<Postgres>,
        known: &str,
        conditions: impl FnOnce(&mut QueryBuilder<Postgres>),
    ) {
        let Self { from, alias, .. } = self;
        query.push(format_args!(" and exists (select from {from} where {alias}.project = $1 and {known}"));
        conditions(query);
        // Without `offset`, the planner may begin with all rows that meet the conditions, if it expects few of them.
        query.push(" offset 0)");
    }

    /// Adds the condition that fewer than `most` older records have a row with the same answer that meets the `conditions`.
    ///
    /// The records are looked at from the newest to the oldest. If many do not meet the conditions, each of them is passed
    /// over for at most `most` rows, and not for every later one.
    fn push_rare(
        &self,
        query: &mut QueryBuilder<Postgres>,
        (answer, most): (Text<'_>, u32),
        conditions: impl FnOnce(&mut QueryBuilder<Postgres>),
    ) {
        let Self { alias, key, .. } = self;
        let (answer, completed_at, record) = (answer.hash(), key[0], self.record());
        query.push(format_args!(
            " and (select count(*) from (
                select from split_texts same where same.project = $1 and same.hash = {answer}
                    and (same.completed_at, same.record) < ({alias}.{completed_at}, {alias}.{record})"
        ));
        let known = format!("{alias}.{record} = same.record and {answer} = same.hash");
        self.push_meets(query, &known, conditions);
        query.push(" order by same.completed_at desc, same.record desc limit ");
        query.push_bind(i64::from(most)).push(") earlier) < ").push_bind(i64::from(most));
    }
}

impl Common {
    /// Adds `from` and `where` for the rows of `selection` that meet the `conditions`, and that repeat no more of older rows
    /// than the parameters allow.
    pub fn push_selection(
        &self,
        query: &mut QueryBuilder<Postgres>,
        selection: &Selection<'_>,
        conditions: impl Fn(&mut QueryBuilder<Postgres>),
    ) {
        let Selection { from, alias, answer, .. } = selection;
        query.push(format_args!(" from {from} where {alias}.project = $1"));
        let distinct = |query: &mut QueryBuilder<Postgres>| {
            conditions(query);
            // Of very many equal rows, only some are known as similar.
            if self.is_exact() || self.is_near() {
                selection.push_oldest(query, &conditions);
            }
            if self.is_near() {
                push_unlike(query, self, selection, &conditions);
            }
        };
        distinct(query);
        if let Some(limit) = answer.zip(self.max_per_answer) {
            selection.push_rare(query, limit, distinct);
        }
    }
}
