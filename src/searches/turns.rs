//! The ends of turns, reported by clients that run an agent without hooks.

use sqlx::PgPool;

use super::{EndedTurn, TurnEnd, write};
use crate::db::retry::Losses;
use crate::error::Result;
use crate::privacy::kept::Kept;
use crate::projects::Tenant;
use crate::types::Timestamp;

/// Ends a turn: every tracked search of the agent's session ends, and is learned from.
pub async fn end(db: &PgPool, tenant: &Tenant, turn: &Kept<TurnEnd>) -> Result<EndedTurn> {
    let received = Timestamp::now();
    let mut losses = Losses::default();
    loop {
        let ended = async {
            let mut transaction = db.begin().await?;
            let ended = write::end_turn(&mut transaction, tenant, turn, received).await?;
            transaction.commit().await?;
            Ok(ended)
        };
        match ended.await {
            Err(error) if losses.again(&error).await => {}
            result => return Ok(result?),
        }
    }
}
