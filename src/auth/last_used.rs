//! On which day each key was last used. It is written now and then for all keys together, not with each request.

use std::sync::Arc;
use std::time::Duration;

use super::keyring::Keyring;
use crate::background::Rounds;
use crate::error::Result;

/// How long it takes from one write to the next.
const PAUSE: Duration = Duration::from_mins(1);

/// The work of writing which keys were used.
#[derive(Debug)]
pub struct LastUsed(pub Arc<Keyring>);

impl Rounds for LastUsed {
    const NAME: &'static str = "noting which keys were used";

    async fn round(&mut self) -> Result<Duration> {
        self.0.write_used().await?;
        Ok(PAUSE)
    }
}
