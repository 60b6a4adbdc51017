//! Rows that are read in bounded memory, however large each of them is.

use futures_util::TryStreamExt as _;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{FromRow, PgExecutor, Postgres, Row as _};

use crate::error::{Error, Result};

/// The maximum number of bytes of the parts of one record that an answer shows.
const MOST: usize = 32 << 20;

/// Returns how many bytes the values of a row have.
#[must_use]
pub fn size(row: &PgRow) -> usize {
    let bytes = |column| row.try_get_raw(column).ok()?.as_bytes().ok().map(<[u8]>::len);
    (0..row.len()).filter_map(bytes).sum()
}

/// Reads the parts of one record. Those that have more than 32 MiB together are refused: no answer holds them.
pub async fn parts<R>(query: Query<'_, Postgres, PgArguments>, db: impl PgExecutor<'_>) -> Result<Vec<R>>
where
    R: for<'r> FromRow<'r, PgRow>,
{
    let (mut parts, mut bytes) = (Vec::new(), 0);
    let mut rows = query.fetch(db);
    while let Some(row) = rows.try_next().await? {
        bytes += size(&row);
        if bytes > MOST {
            return Err(Error::TooLarge(format!(
                "the record has more than {MOST} bytes, which is more than an answer shows"
            )));
        }
        parts.push(R::from_row(&row)?);
    }
    Ok(parts)
}
