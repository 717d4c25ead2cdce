//! Tests programs in a lab on a terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};

use super::Labs;

/// A user at a pseudoterminal on which a command runs.
struct User {
    terminal: File,
    child: Child,
    output: String,
}

impl User {
    fn start(labs: &Labs, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let size = Winsize {
            ws_row: 40,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = openpty(Some(&size), None).expect("a terminal");
        let end = |fd: &OwnedFd| Stdio::from(fd.try_clone().expect("a descriptor"));
        let mut command = labs.runtime.svclab(arguments);
        command
            .env("TERM", "xterm")
            .envs(environment.iter().copied())
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

    /// Reads until the text appears. Returns the output before it.
    fn read_until(&mut self, words: &str) -> String {
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

    fn send(&mut self, words: &str) {
        self.terminal
            .write_all(words.as_bytes())
            .expect("a terminal");
    }

    fn resize(&self, rows: u16, columns: u16) {
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

    fn wait(mut self) -> Option<i32> {
        self.child.wait().expect("the command ends").code()
    }
}

#[test]
fn shell_on_terminal_handles_size_and_ctrl_c() {
    let labs = Labs::with_running_case();
    for shell in ["/bin/bash", "/bin/sh"] {
        let mut user = User::start(&labs, &["shell", "node-1"], &[("SHELL", shell)]);
        user.read_until("[node-1] ");
        user.send("echo $((20 + 1))-$TERM; stty size\r");
        user.read_until("21-xterm");
        user.read_until("40 100");
        // Before its prompt, bash reads the size and sets it again, which undoes a change between
        // the two (readline 8.2, `rltty.c`, `set_winsize`).
        user.read_until("[node-1] ");
        user.resize(50, 120);
        // The new size arrives with a delay.
        user.send("until stty size | grep 50; do :; done\r");
        user.read_until("50 120");
        // Ctrl-C interrupts the program in the lab, not svclab. The process that prints `begun` is
        // the only one in the foreground: a shell that is just starting another program may miss
        // the signal.
        user.send("sh -c \"echo be''gun; exec sleep 600\"\r");
        user.read_until("begun");
        user.send("\x03");
        user.read_until("[node-1] ");
        user.send("exit 5\r");
        assert_eq!(user.wait(), Some(5), "{shell}");
    }
}

#[test]
fn shell_missing_in_lab_falls_back_to_sh() {
    let labs = Labs::with_running_case();
    let mut user = User::start(
        &labs,
        &["shell", "pod/default/web"],
        &[("SHELL", "/home/me/zsh")],
    );
    user.read_until("[pod/default/web] $ ");
    user.send("echo $0\r");
    user.read_until("\nsh\r");
    user.send("exit\r");
    assert_eq!(user.wait(), Some(0));
}

#[test]
fn exec_on_terminal_restores_settings() {
    let labs = Labs::with_running_case();
    let mut user = User::start(&labs, &["exec", "node-1", "--", "tty"], &[]);
    user.read_until("/dev/pts/");
    let before = nix::sys::termios::tcgetattr(&user.terminal).expect("a terminal");
    assert_eq!(user.child.wait().expect("the command ends").code(), Some(0));
    let after = nix::sys::termios::tcgetattr(&user.terminal).expect("a terminal");
    assert!(
        after
            .local_flags
            .contains(nix::sys::termios::LocalFlags::ECHO),
        "{before:?}"
    );
}

#[test]
fn capture_to_terminal_is_refused() {
    let labs = Labs::new();
    let mut user = User::start(&labs, &["capture"], &[]);
    user.read_until("error: cannot write a capture to a terminal\r\n");
    user.read_until(
        "help: `svclab capture > FILE.pcapng`, or `svclab capture | wireshark -k -i -`",
    );
    assert_eq!(user.wait(), Some(2));
}

#[test]
fn run_longer_than_1_s_shows_running_case() {
    let labs = Labs::new();
    let case = "canal-stale-rule/stale=present,rpFilter=1,underlay=passes";
    let mut user = User::start(&labs, &["run", case], &[]);
    user.read_until(&format!("0/1 {case}"));
    user.read_until(&format!("PASS {case}"));
    let after = user.read_until("1 passed, 0 failed");
    assert!(!after.contains("0/1"), "{after:?}");
    assert_eq!(user.wait(), Some(0));
}
