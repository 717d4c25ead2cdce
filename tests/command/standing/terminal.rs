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
    seen: String,
}

impl User {
    fn runs(labs: &Labs, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
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
            seen: String::new(),
        }
    }

    /// Reads until the text appears. Returns the output before it.
    fn sees(&mut self, words: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(words) {
                let rest = self.seen.split_off(at + words.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let mut some = [0; 1024];
            let mut on = [PollFd::new(self.terminal.as_fd(), PollFlags::POLLIN)];
            let came = poll(&mut on, PollTimeout::from(60_000_u16)).expect("a terminal");
            assert!(came > 0, "`{words}` was not seen: {}", self.seen);
            // Reading fails once no process has the terminal open.
            let read = self.terminal.read(&mut some).unwrap_or(0);
            assert!(read > 0, "`{words}` was never seen: {}", self.seen);
            self.seen.push_str(&String::from_utf8_lossy(&some[..read]));
        }
    }

    fn types(&mut self, words: &str) {
        self.terminal
            .write_all(words.as_bytes())
            .expect("a terminal");
    }

    fn resizes(&self, rows: u16, columns: u16) {
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

    fn ends(mut self) -> Option<i32> {
        self.child.wait().expect("an end").code()
    }
}

#[test]
fn a_shell_is_on_a_terminal_of_its_own() {
    let labs = Labs::one();
    for shell in ["/bin/bash", "/bin/sh"] {
        let mut user = User::runs(&labs, &["shell", "node-1"], &[("SHELL", shell)]);
        user.sees("[node-1] ");
        user.types("echo $((20 + 1))-$TERM; stty size\r");
        user.sees("21-xterm");
        user.sees("40 100");
        user.resizes(50, 120);
        // The new size arrives with a delay.
        user.types("until stty size | grep 50; do :; done\r");
        user.sees("50 120");
        // Ctrl-C interrupts the program in the lab, not svclab. The process that prints `begun` is
        // the only one in the foreground: a shell that is just starting another program may miss
        // the signal.
        user.types("sh -c \"echo be''gun; exec sleep 600\"\r");
        user.sees("begun");
        user.types("\x03");
        user.sees("[node-1] ");
        user.types("exit 5\r");
        assert_eq!(user.ends(), Some(5), "{shell}");
    }
}

#[test]
fn where_the_lab_has_not_got_the_users_shell_there_is_another() {
    let labs = Labs::one();
    let mut user = User::runs(
        &labs,
        &["shell", "pod/default/web"],
        &[("SHELL", "/home/me/zsh")],
    );
    user.sees("[pod/default/web] $ ");
    user.types("echo $0\r");
    user.sees("\nsh\r");
    user.types("exit\r");
    assert_eq!(user.ends(), Some(0));
}

#[test]
fn a_terminal_is_as_it_was_when_a_program_ends() {
    let labs = Labs::one();
    let mut user = User::runs(&labs, &["exec", "node-1", "--", "tty"], &[]);
    user.sees("/dev/pts/");
    let before = nix::sys::termios::tcgetattr(&user.terminal).expect("a terminal");
    assert_eq!(user.child.wait().expect("an end").code(), Some(0));
    let after = nix::sys::termios::tcgetattr(&user.terminal).expect("a terminal");
    assert!(
        after
            .local_flags
            .contains(nix::sys::termios::LocalFlags::ECHO),
        "{before:?}"
    );
}

#[test]
fn a_capture_is_not_for_a_terminal() {
    let labs = Labs::none();
    let mut user = User::runs(&labs, &["capture"], &[]);
    user.sees("error: a capture is not for a terminal\r\n");
    user.sees(
        "what to do: `svclab capture > FILE.pcapng`, or `svclab capture | wireshark -k -i -`",
    );
    assert_eq!(user.ends(), Some(2));
}

#[test]
fn a_run_of_more_than_a_second_tells_which_case_is_running() {
    let labs = Labs::none();
    let case = "canal-stale-rule/stale=present,rpFilter=1,underlay=passes";
    let mut user = User::runs(&labs, &["run", case], &[]);
    user.sees(&format!("0/1 {case}"));
    user.sees(&format!("PASS {case}"));
    let after = user.sees("1 passed, 0 failed");
    assert!(!after.contains("0/1"), "{after:?}");
    assert_eq!(user.ends(), Some(0));
}
