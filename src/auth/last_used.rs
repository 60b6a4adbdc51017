//! Records on which day each key was last used, periodically for all keys together instead of with each request.

use std::sync::Arc;
use std::time::Duration;

use super::keyring::Keyring;
use crate::background::Rounds;
use crate::error::Result;

/// The pause between two writes.
const PAUSE: Duration = Duration::from_mins(1);

/// The background work that writes which keys were used.
#[derive(Debug)]
pub struct LastUsed(pub Arc<Keyring>);

impl Rounds for LastUsed {
    const NAME: &'static str = "noting which keys were used";

    async fn round(&mut self) -> Result<Duration> {
        self.0.write_used().await?;
        Ok(PAUSE)
    }
}
