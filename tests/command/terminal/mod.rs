//! Runs commands on a terminal, as a user does, and tests commands for such users.

mod completion;
mod watch;
mod wrapped;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};

/// A user at a pseudoterminal on which a command runs.
pub struct User {
    pub terminal: File,
    pub child: Child,
    output: String,
}

impl User {
    /// Starts a command on a terminal of 40 rows.
    pub fn start(mut command: Command, columns: u16) -> Self {
        let size = Winsize {
            ws_row: 40,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = openpty(Some(&size), None).expect("a terminal");
        let end = |fd: &OwnedFd| Stdio::from(fd.try_clone().expect("a descriptor"));
        command
            .env("TERM", "xterm")
            .env_remove("COLUMNS")
            .stdin(end(&pair.slave))
            .stdout(end(&pair.slave))
            .stderr(end(&pair.slave));
        // SAFETY: two async-signal-safe system calls are made between fork and exec.
        unsafe {
            command.pre_exec(|| {
                nix::unistd::setsid()?;
                if nix::libc::ioctl(0, nix::libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().expect("the command starts");
        Self {
            terminal: File::from(pair.master),
            child,
            output: String::new(),
        }
    }

    /// Reads until the text appears. Returns the output up to its end.
    pub fn read_until(&mut self, words: &str) -> String {
        loop {
            if let Some(position) = self.output.find(words) {
                let rest = self.output.split_off(position + words.len());
                return std::mem::replace(&mut self.output, rest);
            }
            let mut some = [0; 1024];
            let mut polled = [PollFd::new(self.terminal.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut polled, PollTimeout::from(60_000_u16)).expect("a terminal");
            assert!(ready > 0, "`{words}` was not printed: {}", self.output);
            // Reading fails once no process has the terminal open.
            let read = self.terminal.read(&mut some).unwrap_or(0);
            assert!(read > 0, "`{words}` was never printed: {}", self.output);
            self.output
                .push_str(&String::from_utf8_lossy(&some[..read]));
        }
    }

    /// Reads until no process has the terminal open. Returns the output.
    pub fn read_to_end(&mut self) -> String {
        let mut bytes = [0; 4096];
        while let Ok(read) = self.terminal.read(&mut bytes)
            && read > 0
        {
            let text = String::from_utf8_lossy(&bytes[..read]);
            self.output.push_str(&text);
        }
        std::mem::take(&mut self.output)
    }

    pub fn send(&mut self, words: &str) {
        self.terminal
            .write_all(words.as_bytes())
            .expect("a terminal");
    }

    pub fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        nix::ioctl_write_ptr_bad!(set_size, nix::libc::TIOCSWINSZ, Winsize);
        use std::os::fd::AsRawFd as _;
        // SAFETY: the kernel reads the structure, which outlives the call.
        unsafe { set_size(self.terminal.as_fd().as_raw_fd(), &raw const size) }
            .expect("a terminal");
    }

    pub fn wait(mut self) -> Option<i32> {
        self.child.wait().expect("the command ends").code()
    }
}
