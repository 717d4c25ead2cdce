//! Tests that output fits the terminal, and that other output is not wrapped.

use super::User;
use crate::support::{run, stdout, svclab, write_lab};

use crate::run::output::failing_lab;

/// Runs a command on a narrow terminal. Returns its output.
fn on_terminal(arguments: &[&str], columns: u16) -> String {
    let mut command = svclab();
    command.args(arguments);
    let mut user = User::start(command, columns);
    let text = user.read_to_end();
    user.wait();
    let text = text.lines().filter(|line| !line.contains('\x1b'));
    let text = text.collect::<Vec<_>>().join("\n");
    text.replace("\r\n", "\n")
}

#[test]
fn output_fits_the_terminal() {
    let (_directory, path) = write_lab(failing_lab());
    let lab = path.to_str().expect("UTF-8");
    let [good, bad] = ["removed", "present"]
        .map(|stale| format!("canal-stale-rule/stale={stale},rpFilter=1,underlay=passes"));
    for arguments in [
        &["run", "--verbose", lab][..],
        &["why", &bad],
        &["bisect", "--good", &good, "--bad", &bad],
    ] {
        let text = on_terminal(arguments, 60);
        for line in text.lines() {
            let is_short = line.chars().count() <= 60;
            let words = line.split_whitespace().count();
            let is_command = line.contains("svclab run") || line.contains("# ");
            assert!(
                is_short || is_command || words <= 2,
                "{arguments:?}: {line}"
            );
        }
        let piped = stdout(&run(arguments));
        let is_long = |line: &str| line.chars().count() > 60;
        assert!(piped.lines().any(is_long), "{piped}");
        assert!(
            text.lines().count() > piped.lines().count(),
            "{text}{piped}"
        );
    }
}
