//! Reads the version and features of this machine's QEMU, and stores them in the cache.

use serde::{Deserialize, Serialize};

use crate::kernel::error::guest::GuestError;
use crate::kernel::guest::Guest;
use crate::kernel::guest::cache::digest::FileIdentity;
use crate::kernel::guest::qemu::{self, Qemu};

/// Facts about a QEMU, valid as long as its file is unchanged.
#[derive(Debug, Serialize, Deserialize)]
struct QemuNote {
    identity: FileIdentity,
    qemu: Qemu,
}

/// Returns the QEMU of this machine. Its version and features are read once.
pub(super) async fn installed_qemu(guest: &Guest) -> Result<Qemu, GuestError> {
    let path = qemu::find_qemu(std::env::var_os("PATH").as_deref())?;
    let identity = FileIdentity::from_file(&path).map_err(|source| GuestError::Spawn {
        program: path.clone(),
        source,
    })?;
    let note = guest
        .cache
        .read_note("qemu.json")
        .filter(|note: &QemuNote| note.identity == identity && note.qemu.path == path);
    if let Some(note) = note {
        return Ok(note.qemu);
    }
    let (qemu, _) = qemu::inspect(&path).await?;
    let note = QemuNote {
        identity,
        qemu: qemu.clone(),
    };
    guest.cache.store_note("qemu.json", &note)?;
    Ok(qemu)
}
