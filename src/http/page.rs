//! Lists, newest first, in pages. An opaque cursor holds the sort key of a page's last record (keyset
//! pagination).

use std::borrow::Cow;

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgPool, Postgres, QueryBuilder};
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{IntoParams, PartialSchema, ToSchema};
use uuid::Uuid;

use crate::db::rows;
use crate::error::{Error, Result};
use crate::http::memory::Memory;
use crate::http::params::{from_pairs, query_pairs};
use crate::http::{Check, Checks};
use crate::types::{Timestamp, derived_id};

/// The query parameters that every list has.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageParams {
    /// The maximum number of records on this page, from 1 to 500. The default is 50. A page of large records has
    /// fewer.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Only records created at this time or later, as RFC 3339 or Unix seconds.
    #[serde(default, deserialize_with = "time_in_query")]
    #[param(value_type = Option<Timestamp>)]
    since: Option<Timestamp>,
    /// Only records created before this time, as RFC 3339 or Unix seconds.
    #[serde(default, deserialize_with = "time_in_query")]
    #[param(value_type = Option<Timestamp>)]
    until: Option<Timestamp>,
}

/// Reads a time parameter of a query string, which may be optional.
pub fn time_in_query<'de, T: From<Timestamp>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let time: Result<Timestamp, _> = String::deserialize(deserializer)?.parse();
    time.map(T::from).map_err(serde::de::Error::custom)
}

/// Reports a time range whose beginning is after its end.
pub fn check_range(checks: &mut Checks, since: Option<Timestamp>, until: Option<Timestamp>) {
    if let (Some(since), Some(until)) = (since, until) {
        checks.require(since <= until, "since", "must not be after until");
    }
}

impl Check for PageParams {
    fn check(&self, checks: &mut Checks) {
        checks.require(
            self.limit.is_none_or(|limit| (1..=500).contains(&limit)),
            "limit",
            "must be from 1 to 500",
        );
        check_range(checks, self.since, self.until);
    }
}

/// A request for a list: which page, and the list's own filter.
#[derive(Debug)]
pub struct List<F> {
    /// The list's own filter.
    pub filter: F,
    /// The page of the matching records.
    pub page: PageRequest,
}

/// The filter of a list that has none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoFilter {}

impl Check for NoFilter {}

/// The page of a list that a client asks for.
#[derive(Debug)]
pub struct PageRequest {
    limit: i64,
    after: Option<(Timestamp, String)>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    /// Binds the cursors of this request to its list and filter.
    scope: [u8; 8],
    /// The request's path and parameters without the cursor. The address of the next page begins with it.
    address: String,
    /// The memory that the request holds.
    memory: Memory,
}

/// The order of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The oldest record comes first.
    Asc,
    /// The newest record comes first.
    #[default]
    Desc,
}

/// A record that appears in a list.
pub trait Listed {
    /// Returns the time and the unique key by which the list is ordered, usually the record's creation time
    /// and id.
    fn sort_key(&self) -> (Timestamp, String);
}

impl<S: Send + Sync, F: serde::de::DeserializeOwned + Check> FromRequestParts<S> for List<F> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        let (paging, filter): (Vec<_>, Vec<_>) = query_pairs(parts)
            .into_iter()
            .partition(|(name, _)| ["limit", "cursor", "since", "until"].contains(&name.as_str()));
        let PageParams { limit, cursor, since, until } = Checks::of(from_pairs(&paging)?)?;
        let mut named: Vec<_> =
            paging.iter().filter(|(name, _)| name != "cursor" && name != "limit").chain(&filter).collect();
        named.sort();
        let path = parts.uri.path();
        let scope = cursor_scope(path, &named);
        let mut address = form_urlencoded::Serializer::for_suffix(format!("{path}?"), path.len() + 1);
        address.extend_pairs(named);
        address.extend_pairs(limit.map(|limit| ("limit", limit.to_string())));
        let page = PageRequest {
            limit: limit.unwrap_or(50),
            after: cursor.map(|cursor| open_cursor(&cursor, scope)).transpose()?,
            since,
            until,
            scope,
            address: address.finish(),
            memory: Memory::of(&parts.extensions),
        };
        Ok(Self { filter: Checks::of(from_pairs(&filter)?)?, page })
    }
}

impl PageRequest {
    /// Adds this page's conditions, order and limit to a query as [`PageRequest::push_in`] does, the newest record
    /// first.
    pub fn push(
        &self,
        query: &mut QueryBuilder<Postgres>,
        created_at: &str,
        key: &str,
        key_type: &str,
    ) -> Result<()> {
        self.push_in(query, created_at, key, key_type, Order::Desc)
    }

    /// Adds this page's conditions, order and limit to a query that ends within its `where` clause.
    /// `created_at` and `key` are the expressions that the list is ordered by, and `key_type` is the SQL type
    /// of `key`. One row more than the page holds is asked for, which shows whether there is another page.
    pub fn push_in(
        &self,
        query: &mut QueryBuilder<Postgres>,
        created_at: &str,
        key: &str,
        key_type: &str,
        order: Order,
    ) -> Result<()> {
        if let Some(since) = self.since {
            query.push(format_args!(" and {created_at} >= ")).push_bind(since);
        }
        if let Some(until) = self.until {
            query.push(format_args!(" and {created_at} < ")).push_bind(until);
        }
        if let Some((at, last)) = &self.after {
            // Postgres does not read every spelling of an id that Rust does.
            if key_type == "uuid" && !Uuid::parse_str(last).is_ok_and(|id| id.to_string() == *last) {
                return Err(no_such_cursor());
            }
            let comparison = if order == Order::Asc { ">" } else { "<" };
            query.push(format_args!(" and ({created_at}, {key}) {comparison} (")).push_bind(*at);
            query.push(", ").push_bind(last.clone()).push(format_args!("::{key_type})"));
        }
        let order = if order == Order::Asc { "asc" } else { "desc" };
        query.push(format_args!(" order by {created_at} {order}, {key} {order} limit "));
        query.push_bind(self.limit + 1);
        Ok(())
    }

    /// Reads the page of the query of [`PageRequest::push`]. It ends early where its records become large, so that a page
    /// takes bounded memory.
    pub async fn read<T>(&self, query: &mut QueryBuilder<Postgres>, db: &PgPool) -> Result<Page<T>>
    where
        T: Listed + for<'r> FromRow<'r, PgRow>,
    {
        self.read_as(query, db, |record: T| record).await
    }

    /// Reads the page as [`PageRequest::read`] does, with rows of another type, of which `record` makes the records.
    pub async fn read_as<R, T>(
        &self,
        query: &mut QueryBuilder<Postgres>,
        db: &PgPool,
        record: impl Fn(R) -> T,
    ) -> Result<Page<T>>
    where
        R: for<'r> FromRow<'r, PgRow>,
        T: Listed,
    {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let (rows, more) = rows::some(query.build(), db, limit, &self.memory).await?;
        let records = rows.into_iter().map(record).collect();
        Ok(self.page(records, more))
    }

    /// Makes the page of its records, and of whether there are more.
    fn page<T: Listed>(&self, rows: Vec<T>, more: bool) -> Page<T> {
        let last = rows.last().filter(|_| more).map(Listed::sort_key);
        let next_cursor = last.map(|(at, key)| seal_cursor(self.scope, at, &key));
        let next =
            next_cursor.as_ref().map(|cursor| format!("{}&cursor={cursor}", self.address).replace("?&", "?"));
        Page { data: rows, next_cursor, next }
    }
}

/// One page of a list. Operations name it by an alias, such as `type GenerationPage = Page<Generation>`,
/// which is the name of its schema in the OpenAPI document.
#[derive(Debug, Serialize)]
pub struct Page<T> {
    /// The records, newest first.
    pub data: Vec<T>,
    /// The `cursor` parameter of the next page. Null on the last page.
    pub next_cursor: Option<String>,
    /// The address of the next page, for the `Link` header (RFC 8288).
    #[serde(skip)]
    next: Option<String>,
}

impl<T: ToSchema> PartialSchema for Page<T> {
    fn schema() -> RefOr<Schema> {
        let nullable_text = SchemaType::from_iter([Type::String, Type::Null]);
        ObjectBuilder::new()
            .description(Some("One page of a list."))
            .property(
                "data",
                Ref::from_schema_name(T::name())
                    .to_array_builder()
                    .description(Some("The records, newest first.")),
            )
            .required("data")
            .property(
                "next_cursor",
                ObjectBuilder::new()
                    .schema_type(nullable_text)
                    .description(Some("The `cursor` parameter of the next page. Null on the last page.")),
            )
            .required("next_cursor")
            .into()
    }
}

impl<T: ToSchema> ToSchema for Page<T> {
    fn name() -> Cow<'static, str> {
        format!("{}Page", T::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(schemas);
    }
}

impl<T: Serialize> IntoResponse for Page<T> {
    fn into_response(self) -> Response {
        let link = self.next.as_ref().map(|next| [(header::LINK, format!("<{next}>; rel=\"next\""))]);
        (link, Json(self)).into_response()
    }
}

/// Returns what cursors are bound to: eight bytes of a hash of the list's name and conditions.
pub fn cursor_scope(list: &str, conditions: &[&(String, String)]) -> [u8; 8] {
    let parts: Vec<_> =
        conditions.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]).collect();
    let hash = derived_id(&[&[list.as_bytes()], parts.as_slice()].concat());
    hash.into_bytes()[..8].try_into().expect("an id has sixteen bytes")
}

/// Encodes a cursor: version byte, scope, and the last record's time and key, in URL-safe base64 (RFC 4648).
#[must_use]
pub fn seal_cursor(scope: [u8; 8], at: Timestamp, key: &str) -> String {
    let bytes = [&[1], scope.as_slice(), &at.micros().to_be_bytes(), key.as_bytes()].concat();
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes a cursor made by [`seal_cursor`] to the sort key of the previous page's last record. A cursor of
/// another list or filter is refused.
pub fn open_cursor(cursor: &str, scope: [u8; 8]) -> Result<(Timestamp, String)> {
    let opened = || {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (&version, rest) = bytes.split_first()?;
        let (given, rest) = rest.split_first_chunk::<8>()?;
        let (micros, key) = rest.split_first_chunk::<8>()?;
        let at = Timestamp::from_micros(i64::from_be_bytes(*micros))?;
        let key = String::from_utf8(key.to_vec()).ok()?;
        (version == 1 && *given == scope && !key.contains('\0')).then_some((at, key))
    };
    opened().ok_or_else(no_such_cursor)
}

fn no_such_cursor() -> Error {
    Error::invalid("/cursor", "is not a cursor of this list with these filters")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cursor_comes_back_as_it_was_sealed_and_only_in_its_own_list(
            scope in any::<[u8; 8]>(), other in any::<[u8; 8]>(), micros in 0..253_402_300_799_000_000_i64, key in "[^\0]{0,40}",
        ) {
            let at = Timestamp::from_micros(micros).expect("in range");
            let sealed = seal_cursor(scope, at, &key);
            prop_assert_eq!(open_cursor(&sealed, scope).expect("opens"), (at, key));
            prop_assume!(scope != other);
            prop_assert!(open_cursor(&sealed, other).is_err());
        }

        #[test]
        fn a_made_up_cursor_is_refused(cursor in ".{0,60}") {
            prop_assert!(open_cursor(&cursor, *b"somelist").is_err());
        }
    }
}
