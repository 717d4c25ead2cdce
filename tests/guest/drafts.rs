//! Runs the labs that `svclab new` writes for IPVS and load balancers.

use std::path::Path;
use std::process::{Command, Output};

use crate::SVCLAB;

fn run_in(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(SVCLAB)
        .current_dir(directory)
        .env("NO_COLOR", "1")
        .args(arguments)
        .output()
        .expect("the command starts")
}

#[test]
fn new_lab_with_ipvs_or_balancer_passes_in_every_guest() {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, options) in [
        ("ipvs", &["--mode=ipvs"][..]),
        ("balancer", &["--load-balancer"]),
        ("both", &["--load-balancer", "--mode=ipvs", "--nodes=1"]),
    ] {
        let new = [&["new", name][..], options].concat();
        assert!(run_in(directory.path(), &new).status.success(), "{name}");
        for kernel in ["6.1", "6.12"] {
            let file = format!("{name}.yaml");
            let output = run_in(directory.path(), &["run", "--kernel", kernel, &file]);
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {text}{errors}");
            assert!(text.contains("0 failed, 0 errors"), "{name}: {text}");
        }
    }
}
