//! Everything that Gleaner promises, one file per domain.

mod private_postgres;
