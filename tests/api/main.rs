//! The service through its real router on a real Postgres, a database for each test.

mod generations;
mod openapi;
mod private_postgres;
mod support;
