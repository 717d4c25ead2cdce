//! Tests guests that do not boot, and damaged snapshots.

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use svclab_runner::kernel::KernelError;
use svclab_runner::kernel::guest::{Cache, Deadlines, KernelRequest, SNAPSHOTS};
use svclab_test_support::block_on;
use svclab_test_support::cases::prepare_case;
use svclab_test_support::guests::{assert_clean, new_cache};

use crate::command::{QEMU, program_directory, run};
use crate::support::{QUICK, guest_in, guest_with_program, unpack_kernel};

/// Starts a guest with a new cache, that program as its first process, and that boot timeout.
/// Returns the error message.
fn boot_error(init: &Path, boot: Duration) -> String {
    let deadlines = Deadlines {
        boot,
        ..Deadlines::default()
    };
    let (_directory, cache) = new_cache("6.12");
    let wanted = KernelRequest::Series("6.12".to_owned());
    let error = block_on(async {
        let guest = guest_with_program(&cache, &wanted, init).await;
        let error = guest.with_deadlines(deadlines).start().await;
        error.expect_err("the guest cannot boot")
    });
    let KernelError::NoGuest(guest) = &error else {
        panic!("{error:?}")
    };
    assert!(guest.is_loss());
    assert_clean(cache.directory());
    assert_eq!(cache.keys(SNAPSHOTS), [""; 0], "no snapshot was kept");
    error.to_string()
}

#[test]
fn guest_kernel_panic_at_boot_is_quoted() {
    let message = boot_error(Path::new("/bin/false"), Deadlines::default().boot);
    let first = message.lines().next().expect("a message");
    assert!(
        first.contains("did not boot: the guest's kernel panicked: Attempted to kill init!"),
        "{message}"
    );
}

#[test]
fn guest_hang_at_boot_ends_at_deadline() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("idle.c");
    let idle = directory.path().join("idle");
    fs::write(&source, "int main(void) { for (;;); }\n").expect("it can be written");
    let compiled = Command::new("cc")
        .arg("-o")
        .arg(&idle)
        .arg(&source)
        .status();
    assert!(compiled.expect("a C compiler is installed").success());
    let message = boot_error(&idle, Duration::from_secs(20));
    assert!(message.contains("was not ready after 20 s"), "{message}");
}

/// Returns the path of the only snapshot in a cache.
fn snapshot(cache: &Cache) -> PathBuf {
    let keys = cache.keys(SNAPSHOTS);
    assert_eq!(keys.len(), 1, "{keys:?}");
    cache.entry_directory(SNAPSHOTS, &keys[0])
}

async fn assert_guest_works(cache: &Cache) {
    let prepared = prepare_case(QUICK);
    let agent = guest_in(cache, "6.12")
        .await
        .start()
        .await
        .expect("a guest");
    let mut session = agent.build(prepared.plan.clone()).await.expect("a lab");
    let evidence = session.probe().await.expect("evidence");
    assert!(
        prepared
            .judge()
            .expect("the case can be judged")
            .judge(&evidence)
            .holds()
    );
}

fn modified(file: &Path) -> std::time::SystemTime {
    fs::metadata(file)
        .and_then(|found| found.modified())
        .expect("the file exists")
}

#[test]
fn snapshot_damaged_is_rebuilt() {
    let (_directory, cache) = new_cache("6.12");
    block_on(async {
        assert_guest_works(&cache).await;
        let kept = snapshot(&cache);
        let first = modified(&kept.join("manifest.json"));
        // An intact snapshot is used again.
        assert_guest_works(&cache).await;
        assert_eq!(modified(&snapshot(&cache).join("manifest.json")), first);
        // Overwrites bytes in the memory of the kernel.
        let memory = File::options()
            .write(true)
            .open(kept.join("memory"))
            .expect("the file can be opened");
        memory
            .write_all_at(&[0xff; 4096], 0x0100_0000)
            .expect("it is there");
        assert_guest_works(&cache).await;
        let second = modified(&snapshot(&cache).join("manifest.json"));
        assert!(second > first);
        File::options()
            .write(true)
            .open(kept.join("state"))
            .expect("the file can be opened")
            .set_len(1000)
            .expect("the file can be truncated");
        assert_guest_works(&cache).await;
        assert!(modified(&snapshot(&cache).join("manifest.json")) > second);
    });
}

#[test]
fn snapshot_that_fails_to_restore_is_rebuilt() {
    let (_directory, cache) = new_cache("6.12");
    block_on(async {
        assert_guest_works(&cache).await;
        let kept = snapshot(&cache);
        let mut state = File::options()
            .write(true)
            .open(kept.join("state"))
            .expect("the file can be opened");
        state
            .seek(SeekFrom::Start(0))
            .expect("the file has a start");
        state
            .write_all(b"nonsense")
            .expect("the file can be written");
        // Updates the digest, as if the state had been invalid when the snapshot was stored.
        let manifest =
            fs::read_to_string(kept.join("manifest.json")).expect("the file can be read");
        let mut manifest: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
        manifest["files"]["state"] = sha256(&kept.join("state")).into();
        fs::write(kept.join("manifest.json"), manifest.to_string())
            .expect("the file can be written");
        assert_guest_works(&cache).await;
    });
}

fn sha256(file: &Path) -> String {
    use sha2::Digest as _;
    data_encoding::HEXLOWER.encode(&sha2::Sha256::digest(
        fs::read(file).expect("the file can be read"),
    ))
}

#[test]
fn run_kernel_of_user_with_modules_passes() {
    let (tree, image, release) = unpack_kernel("6.1", |_| true);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let cache = directory.path().join("cache");
    let path = program_directory(&[QEMU], &[]);
    let image = image.to_string_lossy();
    let ran = |words: &[&str]| {
        let words: Vec<&str> = ["run", QUICK, "--format", "json", "--kernel", &image]
            .iter()
            .chain(words)
            .copied()
            .collect();
        run(&cache, path.path(), &words)
    };
    // The modules are beside the kernel, as in a package.
    let ended = ran(&[]);
    assert_eq!(ended.code, Some(0), "{}", ended.output);
    let results: serde_json::Value = serde_json::from_str(&ended.output).expect("results");
    assert_eq!(results["cases"][0]["kernel"], release.as_str());
    // The modules are in another directory.
    let elsewhere = tempfile::tempdir().expect("a directory");
    let modules = elsewhere.path().join(&release);
    fs::rename(tree.path().join("lib/modules").join(&release), &modules)
        .expect("the directory can be renamed");
    assert_eq!(ran(&[]).code, Some(3));
    let ended = ran(&["--modules", &modules.to_string_lossy()]);
    assert_eq!(ended.code, Some(0), "{}", ended.output);
}
