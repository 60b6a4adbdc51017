//! Hooks: what an agent tells while it works. It teaches the same as the agent's transcript; told both ways, it is learned
//! once, since what is done is named by the agent's own ids.

use std::collections::HashMap;

use sqlx::PgPool;

use super::transcripts::{Context, Origin};
use super::write;
use crate::agents::{Agent, Entry};
use crate::db::retry::Losses;
use crate::error::Result;
use crate::http::{clean_json, utf8};
use crate::privacy::kept::Kept;
use crate::projects::Tenant;
use crate::types::Timestamp;

/// Takes the payload of a hook. One that is not understood is counted as a malformed line of the agent's hooks.
pub async fn take(db: &PgPool, tenant: &Tenant, agent: &'static Agent, mut body: Vec<u8>) -> Result<()> {
    let source = format!("hooks/{}", agent.name);
    let Some(origin) = tenant.policy.keep(Origin { agent, source, learn: None }) else { return Ok(()) };
    let cleaned = clean_json(&mut body);
    let entry =
        cleaned.and_then(|_| Ok((agent.parse_hook)(utf8(&body)?, &tenant.rules.tools))).ok().flatten();
    match entry {
        Some(mut entry) => {
            entry.at = entry.at.or_else(|| Some(Timestamp::now()));
            learn(db, tenant, entry, &origin).await
        }
        None => count_malformed(db, tenant, &origin).await,
    }
}

async fn learn(db: &PgPool, tenant: &Tenant, mut entry: Entry, origin: &Kept<Origin>) -> Result<()> {
    Context::default().complete(&mut entry);
    let Some(entry) = tenant.policy.keep(entry) else { return Ok(()) };
    let mut losses = Losses::default();
    loop {
        match replay(db, tenant, &entry, origin).await {
            Err(error) if losses.again(&error).await => {}
            result => return Ok(result?),
        }
    }
}

/// Learns from an entry. A hook that tells of a call tells the whole call, so no half of one is remembered.
async fn replay(
    db: &PgPool,
    tenant: &Tenant,
    entry: &Kept<Entry>,
    origin: &Kept<Origin>,
) -> sqlx::Result<()> {
    let mut transaction = db.begin().await?;
    let entries = std::slice::from_ref(entry);
    write::replay(&mut transaction, tenant, &origin.source, &mut HashMap::new(), entries).await?;
    transaction.commit().await
}

/// Counts a payload that is not understood as a malformed line of its source.
async fn count_malformed(db: &PgPool, tenant: &Tenant, origin: &Kept<Origin>) -> Result<()> {
    const SQL: &str = "
        insert into transcripts as t (project, source, bad_lines, received_at) values ($1, $2, 1, $3)
        on conflict (project, source) do update set bad_lines = t.bad_lines + 1, received_at = excluded.received_at";
    sqlx::query(SQL).bind(&*tenant.name).bind(&origin.source).bind(Timestamp::now()).execute(db).await?;
    Ok(())
}
