//! Guests with private caches, and kernels with selected modules.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use svclab_runner::kernel::guest::{Cache, Guest, KernelRequest};
use svclab_test_support::block_on;
use svclab_test_support::guests::new_guest;
use svclab_test_support::programs::agent;

/// Kernel series that the tests boot.
pub const SERIES: [&str; 2] = ["6.1", "6.12"];

/// A case of about 1 s without timeouts.
pub const QUICK: &str = "canal-stale-rule/stale=removed,rpFilter=1,underlay=passes";

/// Creates a guest of a kernel series from another cache.
pub async fn guest_in(cache: &Cache, series: &str) -> Guest {
    guest_with_program(cache, &KernelRequest::Series(series.to_owned()), &agent()).await
}

/// Creates a guest with that kernel and that first program.
pub async fn guest_with_program(cache: &Cache, wanted: &KernelRequest, program: &Path) -> Guest {
    Guest::with_agent(cache.clone(), wanted, program.to_owned())
        .await
        .expect("a kernel")
}

/// Unpacks a kernel of the distribution like a package, with the modules that `wanted` selects.
/// Returns its directory, the path of the kernel, and its release.
pub fn unpack_kernel(
    series: &str,
    wanted: impl Fn(&str) -> bool,
) -> (tempfile::TempDir, PathBuf, String) {
    let kernel = block_on(new_guest(series)).kernel().clone();
    let release = kernel.metadata.release.clone();
    let directory = tempfile::tempdir().expect("a directory");
    let boot = directory.path().join("boot");
    let image = boot.join(format!("vmlinuz-{release}"));
    let list = directory.path().join("lib/modules").join(&release);
    let modules = list.join("kernel");
    fs::create_dir_all(boot).expect("a directory");
    fs::create_dir_all(&modules).expect("a directory");
    fs::copy(kernel.directory.join("vmlinuz"), &image).expect("the file can be copied");
    let archive = fs::read(kernel.directory.join("modules.cpio")).expect("an archive");
    let mut rest = archive.as_slice();
    loop {
        let mut entry = cpio::NewcReader::new(rest).expect("an archive");
        if entry.entry().is_trailer() {
            break;
        }
        let name = entry.entry().name().to_owned();
        let module = name.strip_suffix(".ko");
        if let Some((_, module)) = module.and_then(|name| name.split_once('-'))
            && wanted(module)
        {
            let mut file = File::create(modules.join(format!("{module}.ko"))).expect("a file");
            std::io::copy(&mut entry, &mut file).expect("it can be copied");
        }
        rest = entry.finish().expect("an archive");
    }
    let built_in = "modules.builtin";
    fs::copy(kernel.directory.join(built_in), list.join(built_in)).expect("the file can be copied");
    (directory, image, release)
}
