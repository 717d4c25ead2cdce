//! Computes the key of everything that guests are built from, before anything is downloaded. Users
//! who store svclab's cache elsewhere, such as CI, store it under this key.

use super::cache::digest;
use super::image::FORMAT_VERSION;
use super::initramfs::userland;
use super::qemu_version;
use super::store::{KernelRequest, find_package};
use crate::kernel::agent_program;
use crate::kernel::error::guest::GuestError;
use crate::kernel::error::guest_files::UserlandError;

/// Returns the release of the kernel that apt would download, with a digest. The digest covers the
/// versions of its package and of QEMU, and the files of the agent and of the programs that labs
/// need. A cache under another key contains nothing useful, except by chance.
///
/// # Errors
///
/// When apt offers no such kernel, QEMU is missing, or a program cannot be read.
pub async fn cache_key(request: &KernelRequest) -> Result<String, GuestError> {
    let package = find_package(request).await?;
    let (qemu, _) = qemu_version().await?;
    let agent = agent_program::expected_path();
    let (files, _) = userland::collect_files(&agent, &userland::installed_programs())?;
    let mut archive = Vec::new();
    files
        .write(&mut archive)
        .map_err(|source| UserlandError::Read {
            file: agent.clone(),
            source: source.into(),
        })?;
    let digest = digest::name_of_parts(&[
        &FORMAT_VERSION.to_string(),
        env!("CARGO_PKG_VERSION"),
        &package.version,
        &qemu,
        &digest::bytes_digest(&archive),
    ]);
    Ok(format!("{}-{digest}", package.release))
}
