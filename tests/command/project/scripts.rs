//! Tests the help of the scripts in `scripts`.

use std::process::Command;

use crate::support::{project, stderr, stdout};

/// `scripts/lab` is not among them: its help is that of `svclab`.
const SCRIPTS: [&str; 9] = [
    "bench",
    "check-cycles",
    "check-style",
    "collect-node",
    "docs",
    "package",
    "package-image",
    "test",
    "test-packages",
];

#[test]
fn scripts_with_help_option_only_print() {
    for script in SCRIPTS {
        let help = Command::new(project().join("scripts").join(script))
            .arg("--help")
            .env("PATH", "/usr/bin:/bin")
            .output()
            .expect("the script starts");
        let (text, errors) = (stdout(&help), stderr(&help));
        assert_eq!(help.status.code(), Some(0), "{script}: {errors}");
        assert_eq!(errors, "", "{script}");
        let first = text.lines().next().unwrap_or_default();
        assert!(
            first.len() > 20 && !first.starts_with('#'),
            "{script}: {text}"
        );
        // No line of the script follows its comment.
        assert!(!text.contains("set -euo"), "{script}: {text}");
    }
}
