//! What is kept between runs, whoever else uses it and whatever ends them.

use std::fs;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use svclab::kernel::guest::SNAPSHOTS;

use super::support::{QUICK, below, ended, is_qemu, own_cache, programs, svclab, until};

const QEMU: &str = "qemu-system-x86_64";

#[test]
fn a_killed_run_leaves_the_other_its_cache_and_nothing_running() {
    let (_directory, cache) = own_cache("6.12");
    let path = programs(&[QEMU], &[]);
    let run = || {
        svclab(cache.directory(), path.path())
            .args(["run", QUICK, "--kernel", "6.12"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it is as the test made it")
    };
    let mut first = run();
    until("a guest boots", || {
        below(first.id()).into_iter().any(is_qemu)
    });
    let guests = below(first.id());
    let second = run();
    first.kill().expect("it is as the test made it");
    first.wait().expect("it is as the test made it");
    until("its guest is gone", || {
        !guests.iter().any(|process| is_qemu(*process))
    });
    let (code, said) = ended(
        &second
            .wait_with_output()
            .expect("it is as the test made it"),
    );
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(cache.keys("making"), [""; 0]);
    assert_eq!(cache.keys(SNAPSHOTS).len(), 1);
}

#[test]
fn ctrl_c_ends_guests_too() {
    let (_directory, cache) = own_cache("6.12");
    let path = programs(&[QEMU], &[]);
    let mut run = svclab(cache.directory(), path.path())
        .args(["run", QUICK, "--kernel", "6.12"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it is as the test made it");
    until("a guest boots", || below(run.id()).into_iter().any(is_qemu));
    let guests = below(run.id());
    kill(
        Pid::from_raw(i32::try_from(run.id()).expect("it is as the test made it")),
        Signal::SIGINT,
    )
    .expect("it is as the test made it");
    assert_eq!(
        run.wait().expect("it is as the test made it").code(),
        Some(130)
    );
    until("its guests are gone", || {
        !guests.iter().any(|process| is_qemu(*process))
    });
    assert_eq!(cache.keys("making"), [""; 0]);
}

#[test]
fn kernels_are_listed_and_removed_with_their_snapshots() {
    let (_directory, cache) = own_cache("6.12");
    let path = programs(&[QEMU], &[]);
    let kernel = |words: &[&str]| {
        let output = svclab(cache.directory(), path.path())
            .arg("kernel")
            .args(words)
            .output()
            .expect("it is as the test made it");
        ended(&output)
    };
    let (code, said) = kernel(&["path", "6.12"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        fs::metadata(said.trim())
            .expect("it is as the test made it")
            .is_file()
    );
    let (code, said) = kernel(&["list"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("kept") && said.contains("linux-image-6.12."),
        "{said}"
    );
    let (code, said) = kernel(&["rm", "6.7"]);
    assert_eq!(code, Some(3), "{said}");
    let (code, said) = kernel(&["rm", "6.12"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("6.12."), "{said}");
    assert!(cache.keys("kernels").is_empty());
    let (code, said) = kernel(&["path", "6.12"]);
    assert_eq!(code, Some(3), "{said}");
}
