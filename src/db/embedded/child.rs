//! Starting a Postgres program as a child that does not outlive the service.
//!
//! A process can ask the kernel for a signal when its parent ends, but only for itself, and changing the user
//! cancels the request. So the service starts itself again with the hidden command `postgres-child`, which
//! changes the user, makes the request and then executes the program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

use anyhow::{Context, Error, Result, anyhow, bail};
use nix::unistd::{Gid, Pid, Uid, getppid};

use super::account::Account;

/// The name of the hidden command that runs [`child_main`].
pub const COMMAND: &str = "postgres-child";

/// The environment variables that a Postgres program inherits: how to find libraries and locales. It inherits
/// none of the service's own settings (which include keys), and no `PG…` variable that would change its
/// behavior.
const KEPT: [&str; 5] = ["PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LOCALE_ARCHIVE", "TMPDIR"];

/// Starts programs as another user.
#[derive(Debug, Clone)]
pub(super) struct Launcher {
    pub(super) program: PathBuf,
    pub(super) account: Account,
    /// The folder in which the programs run. The user can enter it.
    pub(super) folder: PathBuf,
}

impl Launcher {
    /// Makes a command that runs `program` with the arguments added to it. The program gets SIGINT when the
    /// *thread* that spawned it ends.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(COMMAND).arg(process::id().to_string());
        command.arg(self.account.uid.to_string()).arg(self.account.gid.to_string()).arg(program);
        command.env_clear().envs(KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        // `TZ` saves initdb the search for the time zone's name.
        command.env("TZ", "UTC");
        // Ctrl-C reaches a whole process group, but the service needs its database until all requests have
        // ended.
        command.process_group(0).current_dir(&self.folder).stdin(Stdio::null());
        command
    }
}

/// Runs the hidden command `postgres-child`: changes the user, asks for a signal when the service ends, and
/// executes the given program. Returns only if that failed, with the reason.
///
/// `args` are what follows the command's name: the service's process id, a user id, a group id, the program,
/// and the program's arguments. It must be called on the main thread, before any other thread starts.
pub fn child_main(args: impl IntoIterator<Item = OsString>) -> Error {
    match prepare(args.into_iter()) {
        Ok(mut command) => {
            let error = command.exec();
            Error::new(error).context(format!("cannot run {}", command.get_program().display()))
        }
        Err(error) => error,
    }
}

fn prepare(mut args: impl Iterator<Item = OsString>) -> Result<Command> {
    let mut number = |what: &str| -> Result<u32> {
        let text = args.next().and_then(|a| a.into_string().ok());
        text.and_then(|t| t.parse().ok()).ok_or_else(|| anyhow!("{COMMAND}: {what} expected"))
    };
    let parent = Pid::from_raw(number("a process id")?.try_into()?);
    let uid = Uid::from_raw(number("a user id")?);
    let gid = Gid::from_raw(number("a group id")?);
    let mut command = Command::new(args.next().context("a program expected")?);
    command.args(args);
    if uid != Uid::effective() {
        drop_to(uid, gid, &mut command)?;
    }
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGINT)?;
    if getppid() != parent {
        bail!("the service has ended");
    }
    Ok(command)
}

#[cfg(target_os = "linux")]
fn drop_to(uid: Uid, gid: Gid, _command: &mut Command) -> Result<()> {
    use nix::unistd::{setgid, setgroups, setuid};

    setgroups(&[gid]).and_then(|()| setgid(gid)).and_then(|()| setuid(uid)).context("cannot drop the user")
}

/// Changes the user on systems other than Linux, where no request to the kernel depends on the order and
/// where not every system can set groups separately.
#[cfg(not(target_os = "linux"))]
fn drop_to(uid: Uid, gid: Gid, command: &mut Command) -> Result<()> {
    command.uid(uid.as_raw()).gid(gid.as_raw());
    Ok(())
}
