//! What names all that guests are made of, before any of it is fetched: whoever
//! keeps svclab's cache elsewhere, as CI does, keeps it by this name.

use super::digest;
use super::error::GuestError;
use super::image::FORMAT;
use super::store::{Wanted, find};
use super::{qemu_version, userland};
use crate::kernel::agent_program;

/// The release of the kernel that apt would get, and a digest of its package's
/// version, QEMU's, and the files of the agent and of the programs that labs need:
/// the cache of another name holds nothing that is of use here, except by chance.
///
/// # Errors
///
/// When apt knows no such kernel, there is no QEMU, or a program cannot be read.
pub async fn key(wanted: &Wanted) -> Result<String, GuestError> {
    let package = find(wanted).await?;
    let (qemu, _) = qemu_version().await?;
    let agent = agent_program::expected();
    let (files, _) = userland::gather(&agent, &userland::installed())?;
    let mut archive = Vec::new();
    files
        .write(&mut archive)
        .map_err(|source| userland::UserlandError::Read {
            file: agent.clone(),
            source,
        })?;
    let made_of = digest::name(&[
        &FORMAT.to_string(),
        env!("CARGO_PKG_VERSION"),
        &package.version,
        &qemu,
        &digest::of_bytes(&archive),
    ]);
    Ok(format!("{}-{made_of}", package.release))
}
