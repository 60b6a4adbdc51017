//! The ends of turns, reported by clients that run an agent without hooks.

use super::intake_pool::IntakePool;
use super::{EndedTurn, TurnEnd, write};
use crate::db::retry::repeat;
use crate::error::Result;
use crate::privacy::kept::Kept;
use crate::projects::Tenant;
use crate::types::Timestamp;

/// Ends a turn: every tracked search of the agent's session ends, and is learned from. A session may have any number of
/// subagents, so each transaction ends the searches of some of them.
pub async fn end(pool: &IntakePool, tenant: &Tenant, turn: &Kept<TurnEnd>) -> Result<EndedTurn> {
    let received = Timestamp::now();
    let (place, mut transaction) = pool.begin(&tenant.name).await?;
    let threads = write::threads_of_session(&mut transaction, &tenant.name, &turn.agent_session_id).await?;
    drop((transaction, place));
    let (mut searches, mut associations_created) = (Vec::new(), 0);
    for threads in threads.chunks(write::MOST_THREADS) {
        let (ended, associations) = repeat(|| async {
            let (_place, mut transaction) = pool.begin(&tenant.name).await?;
            let ended = write::end_turn(&mut transaction, tenant, turn, threads, received).await?;
            transaction.commit().await?;
            Ok(ended)
        })
        .await?;
        searches.extend(ended);
        associations_created += associations;
    }
    searches.sort_by_key(|(at, search)| (*at, search.id));
    let searches = searches.into_iter().map(|(_, search)| search).collect();
    Ok(EndedTurn { agent_session_id: turn.agent_session_id.clone(), searches, associations_created })
}
