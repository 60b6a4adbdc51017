//! What fails while events come in: the server, its Postgres, clients, the queue. Whatever was acknowledged is there afterwards, once; whatever was not is there as a whole or not at all.

mod kills;
mod load;
mod memory;
mod waits;
