//! Parts of this machine that a guest is built from. They are read once, and again after one of
//! them changed.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::installed_qemu::installed_qemu;
use super::kvm::tested_accel;
use crate::kernel::agent::blocking::run_blocking;
use crate::kernel::error::guest::GuestError;
use crate::kernel::guest::Guest;
use crate::kernel::guest::cache::CacheEntry;
use crate::kernel::guest::cache::digest::{self, FileIdentity};
use crate::kernel::guest::initramfs::userland;
use crate::kernel::guest::qemu::{self, Accel, Qemu};
use crate::kernel::guest::snapshot::{SNAPSHOTS, SnapshotInfo};

/// Version of the contents of a snapshot. Changes with everything that the other parts of the key
/// do not cover.
const FORMAT_VERSION: &str = "3";

/// Parts of this machine that a guest is built from.
pub(super) struct BuildInputs {
    pub(super) qemu: Qemu,
    /// Method of executing instructions. `None` until KVM is tested.
    pub(super) accel: Option<Accel>,
    /// Digest of the guest's programs.
    userland: String,
}

/// Digest of the archive that the files of this machine make, valid as long as the files are
/// unchanged.
#[derive(Debug, Serialize, Deserialize)]
struct UserlandNote {
    programs: Vec<PathBuf>,
    sources: Vec<(PathBuf, FileIdentity)>,
    digest: String,
}

impl BuildInputs {
    pub(super) async fn determine(guest: &Guest) -> Result<Self, GuestError> {
        let qemu = installed_qemu(guest).await?;
        Ok(Self {
            accel: tested_accel(guest, &qemu),
            userland: {
                let guest = guest.clone();
                run_blocking(move || userland_digest(&guest)).await?
            },
            qemu,
        })
    }

    /// Returns the key of this guest's snapshot, which covers everything that the snapshot depends
    /// on.
    pub(super) fn key(&self, guest: &Guest, accel: Accel) -> String {
        let processor = match accel {
            Accel::Kvm => processor(),
            // The processor is QEMU's own.
            Accel::Tcg => String::new(),
        };
        digest::name_of_parts(&[
            FORMAT_VERSION,
            env!("CARGO_PKG_VERSION"),
            &guest.kernel.digest,
            &self.userland,
            &self.qemu.version,
            accel.name(),
            &processor,
            &qemu::command_line(accel),
            &guest.memory.to_string(),
        ])
    }

    pub(super) fn stored_snapshot(
        &self,
        guest: &Guest,
        accel: Accel,
    ) -> Option<CacheEntry<SnapshotInfo>> {
        guest.cache.entry(SNAPSHOTS, &self.key(guest, accel))
    }
}

/// Returns the digest of the guest's programs. The programs are read once, and again after one of
/// them changed.
fn userland_digest(guest: &Guest) -> Result<String, GuestError> {
    let programs = guest.programs();
    let name = format!(
        "userland-{}.json",
        digest::name_of_parts(&[&format!(
            "{:?} {:?}",
            FileIdentity::from_file(&guest.program).ok(),
            guest.additional_programs
        )])
    );
    let note: Option<UserlandNote> = guest.cache.read_note(&name);
    if let Some(note) = note
        && note.programs == programs
        && note
            .sources
            .iter()
            .all(|(path, identity)| FileIdentity::from_file(path).ok().as_ref() == Some(identity))
    {
        return Ok(note.digest);
    }
    let (files, sources) = userland::collect_files(&guest.program, &programs)?;
    let mut archive = Vec::new();
    files
        .write(&mut archive)
        .map_err(guest.cache.error_of("build the file system of a guest"))?;
    let note = UserlandNote {
        programs,
        sources: sources
            .into_iter()
            .filter_map(|path| {
                let identity = FileIdentity::from_file(&path).ok()?;
                Some((path, identity))
            })
            .collect(),
        digest: digest::bytes_digest(&archive),
    };
    guest.cache.store_note(&name, &note)?;
    Ok(note.digest)
}

/// Returns the processor's model and flags, which a guest with KVM sees.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .filter(|line| line.starts_with("model name") || line.starts_with("flags"))
        .take(2)
        .collect()
}
