//! A way to the database that can fail.

use std::future::pending;

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

/// A way to the database that can fail.
pub(crate) struct Line {
    is_cut: watch::Sender<bool>,
    losses: watch::Sender<u32>,
    pub(crate) options: PgConnectOptions,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Line {
    pub(crate) async fn to(options: &PgConnectOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (is_cut, cut) = watch::channel(false);
        let (losses, lost) = watch::channel(0);
        let target = options.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (target, cut, lost) = (target.clone(), cut.clone(), lost.clone());
                tokio::spawn(async move {
                    if !*cut.borrow() {
                        forward(near, &target, cut, lost).await;
                    }
                });
            }
        });
        let by_port = match options.get_socket() {
            Some(_) => {
                let database = options.get_database().expect("a database");
                PgConnectOptions::new_without_pgpass().username(options.get_username()).database(database)
            }
            None => options.clone(),
        };
        let options = by_port.host("127.0.0.1").port(port).ssl_mode(PgSslMode::Disable);
        Self { is_cut, losses, options }
    }

    /// Ends all connections and lets no new ones through, or lets them through again.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.send_replace(is_cut);
    }

    /// Loses whatever is sent from now on over the present connections of writers, and tells neither end.
    pub(crate) fn lose_writers(&self) {
        self.losses.send_modify(|losses| *losses += 1);
    }
}

async fn forward(
    mut near: TcpStream,
    target: &PgConnectOptions,
    mut cut: watch::Receiver<bool>,
    mut lost: watch::Receiver<u32>,
) {
    lost.mark_unchanged();
    let mut far: Box<dyn Stream> = match target.get_socket() {
        Some(folder) => {
            let socket = folder.join(format!(".s.PGSQL.{}", target.get_port()));
            Box::new(UnixStream::connect(socket).await.expect("the database"))
        }
        None => {
            Box::new(TcpStream::connect((target.get_host(), target.get_port())).await.expect("the database"))
        }
    };
    // The first message of a connection says its name.
    let mut first = [0; 2_000];
    let length = near.peek(&mut first).await.unwrap_or(0);
    let is_writer = first[..length].windows(14).any(|bytes| bytes == b"gleaner-writer");
    let is_lost = tokio::select! {
        _ = copy_bidirectional(&mut near, &mut far) => false,
        _ = cut.wait_for(|cut| *cut) => false,
        _ = lost.changed(), if is_writer => true,
    };
    if is_lost {
        pending::<()>().await;
    }
}
