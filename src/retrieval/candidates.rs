//! The candidates of a search: the documents that are ranked, which are found by the keys of the plan.

use std::collections::HashSet;
use std::sync::Arc;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::QueryAs;
use sqlx::{AssertSqlSafe, FromRow, PgPool, Postgres};
use uuid::Uuid;

use super::key_plan::{KeyPlan, MOST};
use super::keys::{self, Key};
use super::sample::Sample;
use super::samples::{Samples, Search};
use super::{Corpus, Scope, in_scope};
use crate::error::Result;
use crate::sharing::apart;

/// The number of candidates beyond which no more common keys are used.
const ENOUGH: usize = 100;
/// The number of rows that are read to add candidates.
const FIRST_ROWS: usize = 5 * MOST;

/// A statement that reads candidates, to which the domain binds the parameters of [`Corpus::filter`].
pub type Query<R> = QueryAs<'static, Postgres, R, PgArguments>;

/// A row of a candidate.
pub trait Candidate: for<'r> FromRow<'r, PgRow> + Send + Unpin {
    /// The document's id.
    fn id(&self) -> Uuid;

    /// Returns about how many bytes the candidate takes, with all that is made of it when it is ranked.
    fn bytes(&self) -> usize;
}

/// What is needed to read candidates.
#[derive(Debug)]
pub struct Candidates<'a> {
    /// A connection for reading. Its statements are planned for the given values, because a generic plan does not
    /// know whether there is a facet.
    pub db: &'a PgPool,
    /// The samples from which frequencies of keys are estimated.
    pub samples: &'a Arc<Samples>,
    /// The documents that are searched.
    pub corpus: &'static Corpus,
    /// The search, which takes memory for the candidates.
    pub search: &'a Search,
}

impl Candidates<'_> {
    /// Reads at most [`MOST`] candidates for a text, by id: the documents that the plan finds, and in addition the
    /// first rows in the order of the corpus, if these are likely to be useful because there are few documents, or
    /// too many that match.
    pub async fn find<R: Candidate>(
        &self,
        scope: &Scope,
        text: &str,
        bind: impl Fn(Query<R>) -> Query<R>,
    ) -> Result<Vec<R>> {
        let used = self.current(scope).await?;
        let (mut found, all_read) = self.find_by_samples(scope, text, &used, &bind).await?;
        // More documents have the keys than the plan expected, so that those that were read are an arbitrary part.
        if !all_read && self.have_outgrown(scope, &used).await? {
            let renewed = self.current(scope).await?;
            (found, _) = self.find_by_samples(scope, text, &renewed, &bind).await?;
        }
        self.search.take(found.iter().map(R::bytes).sum()).await?;
        found.sort_unstable_by_key(R::id);
        Ok(found)
    }

    /// Returns the number of documents of the project, and an estimate of how many of them have each of these keys.
    pub async fn document_frequencies(&self, scope: &Scope, keys: &[Key]) -> sqlx::Result<(f64, Vec<f64>)> {
        let sample = self.sample(&scope.of_project()).await?;
        Ok((sample.documents(), keys.iter().map(|key| sample.document_frequency(*key)).collect()))
    }

    /// Reads the candidates by these samples. Returns them, and whether they are all documents that have the keys.
    async fn find_by_samples<R: Candidate>(
        &self,
        scope: &Scope,
        text: &str,
        UsedSamples { of_project, of_scope: sample }: &UsedSamples,
        bind: &impl Fn(Query<R>) -> Query<R>,
    ) -> sqlx::Result<(Vec<R>, bool)> {
        let Corpus { table, keys, indexed, order, filled_up, .. } = self.corpus;
        let plan = {
            let (text, of_plan, keyed) = (text.to_owned(), scope.clone(), self.corpus.keyed);
            let (sample, of_project) = (Arc::clone(sample), Arc::clone(of_project));
            let plan = move || KeyPlan::new(&text, &of_plan, keyed, &sample, &of_project);
            apart(&scope.project, plan).await
        };
        let (mut found, mut all_read) = (Vec::new(), true);
        for (having, of_plan) in [("&&", plan.any), ("@>", plan.all)] {
            if !of_plan.is_empty() && found.len() < ENOUGH {
                // Only the keys are looked up in an index (`offset 0` delays the other conditions). Otherwise
                // Postgres may combine the index with one of the other columns, and read all of a project or facet.
                // With another collation than the column's, the project is not a condition of an index. If the table
                // is distributed over several databases by project, the condition still says which of them has the
                // rows. Because the keys are the result of a subquery, Postgres does not estimate how many rows have
                // them, but expects one in a hundred and uses the index. An estimate counts every rare key like the
                // rarest of those in the table's statistics, which for some forty would seem to be most of the table.
                let of_project = keys::of_project(&scope.project);
                let rows = format!(
                    "select * from {table}
                    where project = $1 collate \"C\" and {indexed} and {keys} @> (select ($3::int[])[:{of_all}])
                        and {keys} {having} (select ($3::int[])[{of_all} + 1:]) offset 0",
                    of_all = of_project.len()
                );
                let of_both = [&of_project, &*of_plan].concat();
                all_read &= self.add(&mut found, &rows, of_both, scope, bind).await?;
            }
        }
        if plan.first_rows && found.len() < ENOUGH
            || *filled_up && (found.is_empty() || sample.is_of_few() && found.len() < MOST)
        {
            let rows = format!(
                "select * from {table} where {} and $3::int[] is null order by {order} limit {FIRST_ROWS}",
                in_scope(self.corpus)
            );
            self.add(&mut found, &rows, None, scope, bind).await?;
        }
        Ok((found, all_read))
    }

    /// Adds those rows that are candidates and new. Returns whether all of them could be read.
    async fn add<R: Candidate>(
        &self,
        found: &mut Vec<R>,
        rows: &str,
        keys: impl Into<Option<Vec<Key>>>,
        scope: &Scope,
        bind: &impl Fn(Query<R>) -> Query<R>,
    ) -> sqlx::Result<bool> {
        let Corpus { columns, indexed, filter, .. } = self.corpus;
        let sql = format!(
            "select {columns} from ({rows}) document where {} and {indexed} and {filter} limit $4",
            in_scope(self.corpus)
        );
        let most = MOST - found.len();
        let query = sqlx::query_as(AssertSqlSafe(sql))
            .bind(scope.project.to_string())
            .bind(scope.facet.clone())
            .bind(keys.into())
            .bind(i64::try_from(most).unwrap_or(i64::MAX));
        let rows: Vec<R> = bind(query).fetch_all(self.db).await?;
        let known: HashSet<_> = found.iter().map(R::id).collect();
        let all_read = rows.len() < most;
        found.extend(rows.into_iter().filter(|row| !known.contains(&row.id())));
        Ok(all_read)
    }

    /// Returns the scope whose sample is used for this one.
    fn sampled(&self, scope: &Scope) -> Scope {
        if self.corpus.facets_are_sampled { scope.clone() } else { scope.of_project() }
    }

    async fn sample(&self, scope: &Scope) -> sqlx::Result<Arc<Sample>> {
        self.samples.of(self.db, self.corpus, scope).await
    }

    /// Returns the samples by which a search in a scope is planned.
    async fn current(&self, scope: &Scope) -> sqlx::Result<UsedSamples> {
        let of_project = self.sample(&scope.of_project()).await?;
        Ok(UsedSamples { of_project, of_scope: self.sample(&self.sampled(scope)).await? })
    }

    /// Returns whether other samples than these would now be used for a search. Samples that have become too small
    /// for their scope or project are renewed first. Others may have been renewed in the background in the meantime.
    async fn have_outgrown(&self, scope: &Scope, used: &UsedSamples) -> sqlx::Result<bool> {
        let mut outgrown = false;
        for (scope, used) in [(scope.of_project(), &used.of_project), (self.sampled(scope), &used.of_scope)] {
            let sample = self.sample(&scope).await?;
            outgrown |= !Arc::ptr_eq(&sample, used)
                || self.samples.renew(self.db, self.corpus, &scope, &sample).await?;
        }
        Ok(outgrown)
    }
}

/// The samples that a search was planned with.
struct UsedSamples {
    /// The sample of the whole project.
    of_project: Arc<Sample>,
    /// The sample of the scope. It is the project's if facets have no samples of their own.
    of_scope: Arc<Sample>,
}
