//! Requests of commands to the server or the database that they use.

use anyhow::{Context as _, Result};
use axum::http::{HeaderValue, Response, header};
use bytes::Bytes;

use super::client::Client;
use super::defaults;
use super::target::{Found, Local, Missing, Target};
use crate::auth::keyring::PROJECT;
use crate::config::from_environment;
use crate::db;
use crate::mcp::Door;
use crate::router;
use crate::server::{Running, Settings};

/// The maximum number of database connections for reading.
const CONNECTIONS: u32 = 4;

/// The server or database that a command uses.
pub(super) struct Opened {
    /// The door through which requests are sent.
    pub(super) door: Door,
    /// The name that distinguishes this server or database from others.
    pub(super) name: String,
    /// The service, if it runs in this process, and the database that it runs on.
    local: Option<(Running, Box<Local>)>,
}

/// Opens the server or database that a command uses, by the rule of all commands. With `upkeep`, it also looks after the
/// database.
pub(super) async fn open(
    target: &Target,
    missing: Missing,
    project: Option<&str>,
    upkeep: bool,
) -> Result<Opened> {
    let named = project.map_or_else(String::new, |project| format!("{project} at "));
    match target.find(missing).await? {
        Found::Server(client) => {
            let name = format!("{named}{}", client.url());
            Ok(Opened { door: to_server(client, project.map(str::to_owned)), name, local: None })
        }
        Found::Database(local) => {
            // A command that can open the database needs no key.
            let settings = Settings {
                connections: CONNECTIONS,
                defaults: defaults()?,
                exports: from_environment()?,
                upkeep,
                trusts: true,
                ..Settings::default()
            };
            let running = Running::start(&local.options, settings);
            let name = format!("{named}{}", db::name(&local.options));
            Ok(Opened {
                door: to_service(&running, project.map(str::to_owned))?,
                name,
                local: Some((running, local)),
            })
        }
    }
}

impl Opened {
    /// Waits until everything is written, and closes the database connections.
    pub(super) async fn close(self) {
        if let Some((running, local)) = self.local {
            running.finish().await;
            drop(local);
        }
    }
}

/// Makes a door that sends requests to a server.
fn to_server(client: Client, project: Option<String>) -> Door {
    Door::new(move |request| {
        let (client, project) = (client.clone(), project.clone());
        let pass = move || {
            let path = request.uri().to_string();
            let answer = client.pass(request.method().clone(), &path, project.as_deref(), request.body());
            let answer = answer.map_err(|error| client.unanswered(&error))?;
            Ok(Response::builder().status(answer.status).body(Bytes::from(answer.body))?)
        };
        Box::pin(async move { tokio::task::spawn_blocking(pass).await? })
    })
}

/// Makes a door that sends requests to the service in this process.
fn to_service(running: &Running, project: Option<String>) -> anyhow::Result<Door> {
    let project =
        project.map(|name| HeaderValue::from_str(&name)).transpose().context("the name of the project")?;
    Ok(Door::of(router::router(running.app.clone())).with(move |request| {
        let headers = request.headers_mut();
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        if let Some(project) = &project {
            headers.insert(PROJECT, project.clone());
        }
    }))
}
