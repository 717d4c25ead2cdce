//! Tests programs in a lab on a terminal.

use super::Labs;
use crate::terminal::User;

fn start(labs: &Labs, arguments: &[&str], environment: &[(&str, &str)]) -> User {
    let mut command = labs.runtime.svclab(arguments);
    command.envs(environment.iter().copied());
    User::start(command, 100)
}

#[test]
fn shell_on_terminal_handles_size_and_ctrl_c() {
    let labs = Labs::with_running_case();
    for shell in ["/bin/bash", "/bin/sh"] {
        let mut user = start(&labs, &["shell", "node-1"], &[("SHELL", shell)]);
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
    let mut user = start(
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
    let mut user = start(&labs, &["exec", "node-1", "--", "tty"], &[]);
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
    let mut user = start(&labs, &["capture"], &[]);
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
    let mut user = start(&labs, &["run", case], &[]);
    user.read_until(&format!("0/1 {case}"));
    user.read_until(&format!("PASS {case}"));
    let after = user.read_until("1 passed, 0 failed");
    assert!(!after.contains("0/1"), "{after:?}");
    assert_eq!(user.wait(), Some(0));
}
