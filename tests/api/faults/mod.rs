//! What fails while events come in: the server, its Postgres, its disk, its clock, clients, the queue. Whatever was acknowledged
//! is there afterwards, once; whatever was not is there as a whole or not at all.

mod chaos;
mod connections;
mod disk;
mod fault;
mod hang_ups;
mod kills;
mod large;
mod load;
mod memory;
mod shim;
mod torture;
mod unread;
mod unsent;
mod waits;
