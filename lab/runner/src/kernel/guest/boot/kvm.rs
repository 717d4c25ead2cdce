//! Tests whether guests boot with KVM on this machine.

use std::fs;
use std::io;

use nix::unistd::geteuid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::installed_qemu::installed_qemu;
use crate::kernel::error::guest::GuestError;
use crate::kernel::guest::Guest;
use crate::kernel::guest::qemu::{Accel, Qemu};

/// Result of the test of KVM, valid until this machine reboots.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct AccelNote {
    boot: String,
    version: String,
    accel: Accel,
    /// Whether root ran the test. Other users have other permissions for the device.
    root: bool,
}

/// State of KVM on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Kvm {
    /// A guest booted with KVM.
    Works,
    /// A guest that should boot with KVM did not become ready.
    Fails,
    /// `/dev/kvm` does not exist.
    Absent,
    /// `/dev/kvm` exists, but this user may not open it.
    Forbidden,
    /// KVM was not tested since this machine was booted.
    Untried,
}

/// Returns the state of KVM on this machine.
pub(crate) async fn kvm(guest: &Guest) -> Result<Kvm, GuestError> {
    let qemu = installed_qemu(guest).await?;
    Ok(match open_kvm() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Kvm::Absent,
        Err(_) => Kvm::Forbidden,
        Ok(_) => match tested_accel(guest, &qemu) {
            Some(Accel::Kvm) => Kvm::Works,
            Some(Accel::Tcg) => Kvm::Fails,
            None => Kvm::Untried,
        },
    })
}

fn open_kvm() -> io::Result<fs::File> {
    fs::File::options().read(true).write(true).open("/dev/kvm")
}

/// Returns the method of executing instructions on this machine. `None` if KVM must be tested
/// first.
pub(super) fn tested_accel(guest: &Guest, qemu: &Qemu) -> Option<Accel> {
    if open_kvm().is_err() {
        return Some(Accel::Tcg);
    }
    guest
        .cache
        .read_note("accel.json")
        .filter(|note: &AccelNote| {
            note.boot == boot_id()
                && note.version == qemu.version
                && note.root == geteuid().is_root()
        })
        .map(|note| note.accel)
}

/// Stores the result of the test of KVM.
pub(super) fn store_result(guest: &Guest, qemu: &Qemu, accel: Accel) -> Result<(), GuestError> {
    let note = AccelNote {
        boot: boot_id(),
        version: qemu.version.clone(),
        accel,
        root: geteuid().is_root(),
    };
    guest.cache.store_note("accel.json", &note)
}

/// Returns the ID of the current boot of the host.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}
