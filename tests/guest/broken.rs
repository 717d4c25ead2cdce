//! Guests that do not come up, and what is found damaged.

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use svclab::kernel::guest::{Cache, Guest, GuestError, SNAPSHOTS, Wanted};
use svclab::kernel::{KernelError, Missing};

use super::guests::{SVCLAB, block_on, case};
use super::support::{QUICK, ended, guest_in, impatient, own_cache, programs, svclab};

/// A guest with a cache of its own, started with that program as its first.
fn started_with(init: &str) -> (KernelError, Cache, tempfile::TempDir) {
    let (directory, cache) = own_cache("6.12");
    let wanted = Wanted::Series("6.12".to_owned());
    let error = block_on(async {
        let guest = Guest::with_agent(cache.clone(), &wanted, PathBuf::from(init))
            .await
            .expect("a kernel")
            .with_deadlines(impatient());
        guest.start().await.expect_err("it cannot come up")
    });
    (error, cache, directory)
}

/// Whether nothing is being made, and nothing was kept.
fn is_clean(cache: &Cache) -> bool {
    cache.keys("making").is_empty() && cache.keys(SNAPSHOTS).is_empty()
}

#[test]
fn a_panic_at_boot_is_told_in_the_kernel_s_words() {
    let (error, cache, _directory) = started_with("/bin/false");
    let KernelError::Guest(guest) = &error else {
        panic!("{error:?}")
    };
    assert!(guest.is_loss());
    let message = error.to_string();
    let first = message.lines().next().expect("it is as the test made it");
    assert!(
        first.contains("did not come up: the guest's kernel panicked: Attempted to kill init!"),
        "{message}"
    );
    assert!(is_clean(&cache));
}

#[test]
fn a_hang_at_boot_ends_at_its_deadline() {
    let directory = tempfile::tempdir().expect("it is as the test made it");
    let (source, idle) = (
        directory.path().join("idle.c"),
        directory.path().join("idle"),
    );
    fs::write(&source, "int main(void) { for (;;); }\n").expect("it is as the test made it");
    let compiled = Command::new("cc")
        .arg("-o")
        .arg(&idle)
        .arg(&source)
        .status();
    assert!(compiled.expect("it is as the test made it").success());
    let (error, cache, _directory) =
        started_with(idle.to_str().expect("it is as the test made it"));
    let KernelError::Guest(guest) = &error else {
        panic!("{error:?}")
    };
    assert!(matches!(&**guest, GuestError::Hangs { .. }), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("was not ready after 20 s"), "{message}");
    assert!(is_clean(&cache));
}

/// The only snapshot of a cache.
fn snapshot(cache: &Cache) -> PathBuf {
    let keys = cache.keys(SNAPSHOTS);
    assert_eq!(keys.len(), 1, "{keys:?}");
    cache.place(SNAPSHOTS, &keys[0])
}

async fn works(cache: &Cache) {
    let prepared = case(QUICK);
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

fn made(file: &Path) -> std::time::SystemTime {
    fs::metadata(file)
        .and_then(|found| found.modified())
        .expect("the file is there")
}

#[test]
fn a_damaged_snapshot_is_made_anew() {
    let (_directory, cache) = own_cache("6.12");
    block_on(async {
        works(&cache).await;
        let kept = snapshot(&cache);
        let first = made(&kept.join("manifest.json"));
        // One that is whole is used again.
        works(&cache).await;
        assert_eq!(made(&snapshot(&cache).join("manifest.json")), first);
        // Bytes of the kernel's own memory.
        let memory = File::options()
            .write(true)
            .open(kept.join("memory"))
            .expect("it is as the test made it");
        memory
            .write_all_at(&[0xff; 4096], 0x0100_0000)
            .expect("it is as the test made it");
        works(&cache).await;
        let second = made(&snapshot(&cache).join("manifest.json"));
        assert!(second > first);
        File::options()
            .write(true)
            .open(kept.join("state"))
            .expect("it is as the test made it")
            .set_len(1000)
            .expect("it is as the test made it");
        works(&cache).await;
        assert!(made(&snapshot(&cache).join("manifest.json")) > second);
    });
}

#[test]
fn a_snapshot_that_does_not_go_on_is_made_anew() {
    let (_directory, cache) = own_cache("6.12");
    block_on(async {
        works(&cache).await;
        let kept = snapshot(&cache);
        let mut state = File::options()
            .write(true)
            .open(kept.join("state"))
            .expect("it is as the test made it");
        state
            .seek(SeekFrom::Start(0))
            .expect("it is as the test made it");
        state
            .write_all(b"nonsense")
            .expect("it is as the test made it");
        // As if it had been so when it was kept.
        let manifest =
            fs::read_to_string(kept.join("manifest.json")).expect("it is as the test made it");
        let mut manifest: serde_json::Value =
            serde_json::from_str(&manifest).expect("it is as the test made it");
        manifest["files"]["state"] = sha256(&kept.join("state")).into();
        fs::write(kept.join("manifest.json"), manifest.to_string())
            .expect("it is as the test made it");
        works(&cache).await;
    });
}

fn sha256(file: &Path) -> String {
    use sha2::Digest as _;
    data_encoding::HEXLOWER.encode(&sha2::Sha256::digest(
        fs::read(file).expect("it is as the test made it"),
    ))
}

/// A kernel of a user's own: the distribution's, and those of its modules that
/// `wanted` names, as `depmod` would find them.
fn own_kernel(series: &str, wanted: impl Fn(&str) -> bool) -> (tempfile::TempDir, PathBuf) {
    let kernel = block_on(super::guests::guest(series)).kernel().clone();
    let directory = tempfile::tempdir().expect("it is as the test made it");
    let image = directory.path().join("boot/vmlinuz");
    fs::create_dir_all(directory.path().join("boot")).expect("it is as the test made it");
    fs::copy(kernel.directory.join("vmlinuz"), &image).expect("it is as the test made it");
    let modules = directory
        .path()
        .join("lib/modules")
        .join(&kernel.about.release)
        .join("kernel");
    fs::create_dir_all(&modules).expect("it is as the test made it");
    let archive =
        fs::read(kernel.directory.join("modules.cpio")).expect("it is as the test made it");
    let mut rest = archive.as_slice();
    loop {
        let mut entry = cpio::NewcReader::new(rest).expect("it is as the test made it");
        if entry.entry().is_trailer() {
            break;
        }
        let name = entry.entry().name().to_owned();
        if let Some(module) = name
            .strip_suffix(".ko")
            .and_then(|name| name.split_once('-'))
            && wanted(module.1)
        {
            let mut file = File::create(modules.join(format!("{}.ko", module.1)))
                .expect("it is as the test made it");
            std::io::copy(&mut entry, &mut file).expect("it is as the test made it");
        }
        rest = entry.finish().expect("it is as the test made it");
    }
    fs::copy(
        kernel.directory.join("modules.builtin"),
        modules.with_file_name("modules.builtin"),
    )
    .expect("it is as the test made it");
    (directory, image)
}

fn own(cache: &Cache, image: &Path) -> Result<Guest, GuestError> {
    let wanted = Wanted::Own {
        kernel: image.to_owned(),
        modules: None,
    };
    block_on(Guest::with_agent(
        cache.clone(),
        &wanted,
        PathBuf::from(SVCLAB),
    ))
}

#[test]
fn a_user_s_own_kernel_runs_labs() {
    let (_kernel, image) = own_kernel("6.1", |_| true);
    let directory =
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("it is as the test made it");
    let programs = programs(&["qemu-system-x86_64"], &[]);
    let output = svclab(&directory.path().join("cache"), programs.path())
        .args(["run", QUICK, "--format", "json", "--kernel"])
        .arg(&image)
        .output()
        .expect("it is as the test made it");
    let (code, said) = ended(&output);
    assert_eq!(code, Some(0), "{said}");
    let results: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("it is as the test made it");
    let ran_in = results["cases"][0]["kernel"]
        .as_str()
        .expect("it is as the test made it");
    assert!(ran_in.starts_with("6.1."), "{ran_in}");
}

#[test]
fn a_kernel_without_what_a_plan_needs_is_told_before_anything_boots() {
    let (_kernel, image) = own_kernel("6.12", |module| module != "xt_comment");
    let (_directory, cache) = own_cache("6.12");
    let guest = own(&cache, &image).expect("it can be kept");
    let missing: Missing = guest.missing(&case(QUICK).plan).unwrap_err();
    let absent: Vec<&str> = missing
        .absent
        .iter()
        .map(|lack| lack.name.as_str())
        .collect();
    assert_eq!(absent, ["ipt_comment"]);
    let programs = programs(&["qemu-system-x86_64"], &[]);
    let output = svclab(cache.directory(), programs.path())
        .args(["run", QUICK, "--kernel"])
        .arg(&image)
        .output()
        .expect("it is as the test made it");
    let (code, said) = ended(&output);
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("is not enough") && said.contains("ipt_comment"),
        "{said}"
    );
    assert!(cache.keys(SNAPSHOTS).is_empty());
}

#[test]
fn a_kernel_that_gives_the_agent_no_port_is_told() {
    let (_kernel, image) = own_kernel("6.1", |module| !module.contains("virtio_console"));
    let (_directory, cache) = own_cache("6.12");
    let guest = own(&cache, &image).expect("it can be kept");
    let error = block_on(guest.with_deadlines(impatient()).start()).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("did not come up: the guest powered off"),
        "{message}"
    );
    assert!(message.contains("find the port"), "{message}");
    assert!(is_clean(&cache));
}

#[test]
fn what_is_no_kernel_is_told() {
    let (_directory, cache) = own_cache("6.12");
    for (file, why) in [
        ("/etc/passwd", "it is no Linux kernel"),
        ("/no/such/vmlinuz", "No such file"),
    ] {
        let error = own(&cache, Path::new(file)).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert!(!error.is_loss());
    }
    let (_kernel, image) = own_kernel("6.12", |_| false);
    let message = own(&cache, &image).unwrap_err().to_string();
    assert!(message.contains("there is no module for labs"), "{message}");
}
