//! Statements for many rows. Each column is declared once, with its name, SQL type and value, and the lists
//! that make up a statement are derived from that.
//!
//! The values of a column are sent to Postgres as one array, whatever the number of rows, so that one
//! prepared statement serves every batch.

use sqlx::Arguments as _;
use sqlx::error::BoxDynError;
use sqlx::postgres::PgArguments;

/// A column of the rows that a statement writes.
#[derive(Debug)]
pub struct Column {
    /// The column's name in the table.
    pub name: &'static str,
    /// The SQL type in which the column's values are sent.
    pub sent_as: &'static str,
    /// The SQL type of the column, where it is not the one sent. Arrays of arrays and of `json` cannot be
    /// sent.
    pub kept_as: Option<&'static str>,
}

/// The columns of a kind of rows, as `columns!` declares them.
pub trait Columns {
    /// The value that a row is made of.
    type Row<'a>;

    /// The columns, in the order of their parameters.
    const COLUMNS: &'static [Column];

    /// Adds one parameter for each column: the array of its values in all rows.
    fn bind_all(rows: &[Self::Row<'_>], arguments: &mut PgArguments) -> Result<(), BoxDynError>;

    /// Adds one parameter for each column: its value in a single row.
    fn bind_one(row: &Self::Row<'_>, arguments: &mut PgArguments) -> Result<(), BoxDynError>;
}

/// Returns the list of column names, such as `a, b`.
#[must_use]
pub fn names<C: Columns>() -> String {
    list::<C>(|_, column| column.name.to_owned())
}

/// Returns the select list that makes rows of the arrays in the parameters from `first` on, such as
/// `unnest($2::uuid[]) as a, unnest($3::text[])::json as b`.
#[must_use]
pub fn unnested<C: Columns>(first: usize) -> String {
    list::<C>(|index, Column { name, sent_as, kept_as }| {
        let cast = kept_as.map(|kept_as| format!("::{kept_as}")).unwrap_or_default();
        format!("unnest(${}::{sent_as}[]){cast} as {name}", first + index)
    })
}

/// Returns the list of columns with the table alias `alias`, such as `new.a, new.b`.
#[must_use]
pub fn values<C: Columns>(alias: &str) -> String {
    list::<C>(|_, column| format!("{alias}.{}", column.name))
}

/// Returns the list of a single row's values, whose parameters begin at `first`, such as `$2::uuid,
/// $3::text::json`.
#[must_use]
pub fn value<C: Columns>(first: usize) -> String {
    list::<C>(|index, Column { sent_as, kept_as, .. }| match kept_as {
        Some(kept_as) => format!("${}::{sent_as}::{kept_as}", first + index),
        None => format!("${}::{sent_as}", first + index),
    })
}

fn list<C: Columns>(item: impl Fn(usize, &Column) -> String) -> String {
    let items: Vec<_> = C::COLUMNS.iter().enumerate().map(|(index, column)| item(index, column)).collect();
    items.join(", ")
}

/// Makes the parameters of a statement about a project: the project, and then those that `rest` adds.
pub fn parameters(
    project: &str,
    rest: impl FnOnce(&mut PgArguments) -> Result<(), BoxDynError>,
) -> sqlx::Result<PgArguments> {
    let mut arguments = PgArguments::default();
    arguments.add(project).and_then(|()| rest(&mut arguments)).map_err(sqlx::Error::Encode)?;
    Ok(arguments)
}

/// Declares the [`Columns`] of a kind of rows. Each column has a name, the type sent, the type kept if it
/// differs, and an expression for the value.
macro_rules! columns {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident<$lifetime:lifetime>($row_type:ty);
        |$row:ident| { $($column:literal: $sent_as:literal $(as $kept_as:literal)? = $value:expr,)+ }
    ) => {
        $(#[$meta])*
        $vis struct $name;

        impl $crate::db::insert::Columns for $name {
            type Row<$lifetime> = $row_type;

            const COLUMNS: &'static [$crate::db::insert::Column] = &[$($crate::db::insert::Column {
                name: $column,
                sent_as: $sent_as,
                kept_as: $crate::db::insert::columns!(@kept $($kept_as)?),
            }),+];

            fn bind_all(
                rows: &[Self::Row<'_>],
                arguments: &mut sqlx::postgres::PgArguments,
            ) -> Result<(), sqlx::error::BoxDynError> {
                use sqlx::Arguments as _;
                $(arguments.add(rows.iter().map(|$row| $value).collect::<Vec<_>>())?;)+
                Ok(())
            }

            fn bind_one(
                $row: &Self::Row<'_>,
                arguments: &mut sqlx::postgres::PgArguments,
            ) -> Result<(), sqlx::error::BoxDynError> {
                use sqlx::Arguments as _;
                $(arguments.add($value)?;)+
                Ok(())
            }
        }
    };
    (@kept) => { None };
    (@kept $kept_as:literal) => { Some($kept_as) };
}

pub(crate) use columns;
