//! A way to the database that can fail.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

/// A way to the database that can fail.
pub(crate) struct Line {
    is_cut: watch::Sender<bool>,
    losses: watch::Sender<&'static str>,
    sent: Arc<AtomicUsize>,
    pub(crate) options: PgConnectOptions,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Line {
    pub(crate) async fn to(options: &PgConnectOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (is_cut, cut) = watch::channel(false);
        let (losses, lost) = watch::channel("");
        let target = options.clone();
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (target, cut, lost, sent) =
                    (target.clone(), cut.clone(), lost.clone(), Arc::clone(&count));
                tokio::spawn(async move {
                    if !*cut.borrow() {
                        forward(near, &target, cut, lost, &sent).await;
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
        Self { is_cut, losses, sent, options }
    }

    /// Returns how many bytes the database has sent.
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// Ends all connections and lets no new ones through, or lets them through again.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.send_replace(is_cut);
    }

    /// Loses whatever is sent from now on over the present connections whose application names begin with `name`, and tells
    /// neither end.
    pub(crate) fn lose(&self, name: &'static str) {
        self.losses.send_replace(name);
    }
}

async fn forward(
    mut near: TcpStream,
    target: &PgConnectOptions,
    mut cut: watch::Receiver<bool>,
    mut lost: watch::Receiver<&'static str>,
    sent: &AtomicUsize,
) {
    lost.mark_unchanged();
    let far: Box<dyn Stream> = match target.get_socket() {
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
    let first = String::from_utf8_lossy(&first[..length]);
    let has_name = |name: &str| first.contains(&format!("application_name\0{name}"));
    let (near_reads, near_writes) = near.split();
    let (far_reads, far_writes) = split(far);
    let asked = AtomicUsize::new(0);
    let is_lost = tokio::select! {
        _ = copy(near_reads, far_writes, &asked) => false,
        _ = copy(far_reads, near_writes, sent) => false,
        _ = cut.wait_for(|cut| *cut) => false,
        () = loses(&mut lost, has_name) => true,
    };
    if is_lost {
        pending::<()>().await;
    }
}

/// Copies whatever comes, and counts it.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: &AtomicUsize,
) -> io::Result<()> {
    let mut piece = vec![0; 64 << 10];
    loop {
        let length = from.read(&mut piece).await?;
        if length == 0 {
            return Ok(());
        }
        count.fetch_add(length, Ordering::Relaxed);
        to.write_all(&piece[..length]).await?;
    }
}

async fn loses(lost: &mut watch::Receiver<&'static str>, has_name: impl Fn(&str) -> bool) {
    loop {
        lost.changed().await.expect("the line is there");
        if has_name(*lost.borrow_and_update()) {
            return;
        }
    }
}
