//! Starts a guest and connects to its agent. Resumes a snapshot if there is one; else boots once
//! and stores a snapshot.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt as _;
use nix::unistd::geteuid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::codec::FramedRead;

use super::Guest;
use super::cache::digest::{self, FileIdentity};
use super::cache::{Cache, Entry};
use super::error::GuestError;
use super::image::{ARCHIVE_FILE, KERNEL_FILE};
use super::initramfs::userland;
use super::qemu::machine::RunningMachine;
use super::qemu::{self, Accel, MemorySource, Qemu, StartMode};
use super::snapshot::{self, STATE_FILE, SnapshotInfo};
use crate::kernel::agent::{Agent, ConnectOptions, Keepalive};
use crate::kernel::error::KernelError;
use svclab_model::protocol::{Event, Request, event_framing, read_event};

/// Kind of the cache entries of snapshots.
pub const SNAPSHOTS: &str = "snapshots";

/// Version of the contents of a snapshot. Changes with everything that the other parts of the key
/// do not cover.
const FORMAT_VERSION: &str = "3";

/// Maximum number of snapshots of one kernel that are kept. Each build of svclab creates one.
const MAX_SNAPSHOTS: usize = 3;

/// Number of keepalive requests within the maximum silence of an agent.
const KEEPALIVES_PER_SILENCE: u32 = 4;

/// Starts a guest, from its snapshot if possible.
pub async fn start(guest: &Guest) -> Result<Agent, KernelError> {
    let build_inputs = BuildInputs::determine(guest).await?;
    if let Some(accel) = build_inputs.accel
        && let Some(kept) = build_inputs.stored_snapshot(guest, accel)
    {
        let mut resumed = resume(guest, &build_inputs.qemu, accel, &kept).await;
        // A guest that was killed shows nothing about the snapshot.
        if matches!(&resumed, Err(error) if error.is_kill()) {
            resumed = resume(guest, &build_inputs.qemu, accel, &kept).await;
        }
        match resumed {
            Ok(agent) => return Ok(agent),
            Err(error) if error.is_kill() => return Err(error),
            // The digest was correct, but the snapshot cannot be resumed: its contents differ from
            // what its key states. Another snapshot is created. If that one cannot be resumed
            // either, its error is returned.
            Err(error) => tracing::warn!(
                "discarding the snapshot {}: {error}",
                kept.directory.display()
            ),
        }
        let _lock = guest.cache.lock(SNAPSHOTS, guest.kernel.key()).await?;
        guest
            .cache
            .remove(SNAPSHOTS, &build_inputs.key(guest, accel))?;
    }
    let (accel, kept) = build_inputs.provide_snapshot(guest).await?;
    resume(guest, &build_inputs.qemu, accel, &kept).await
}

/// Boots a guest and stores its snapshot, unless a snapshot is stored already.
pub async fn boot(guest: &Guest) -> Result<(), KernelError> {
    BuildInputs::determine(guest)
        .await?
        .provide_snapshot(guest)
        .await?;
    Ok(())
}

/// Parts of this machine that a guest is built from.
struct BuildInputs {
    qemu: Qemu,
    /// Method of executing instructions. `None` until KVM is tested.
    accel: Option<Accel>,
    /// Digest of the guest's programs.
    userland: String,
}

/// Facts about a QEMU, valid as long as its file is unchanged.
#[derive(Debug, Serialize, Deserialize)]
struct QemuNote {
    identity: FileIdentity,
    qemu: Qemu,
}

/// Result of the test of KVM, valid until this machine reboots.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct AccelNote {
    boot: String,
    version: String,
    accel: Accel,
    /// Whether root ran the test. Other users have other permissions for the device.
    root: bool,
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
    async fn determine(guest: &Guest) -> Result<Self, GuestError> {
        let qemu = installed_qemu(guest).await?;
        Ok(Self {
            accel: tested_accel(guest, &qemu),
            userland: userland_digest(guest)?,
            qemu,
        })
    }

    /// Returns the key of this guest's snapshot, which covers everything that the snapshot depends
    /// on.
    fn key(&self, guest: &Guest, accel: Accel) -> String {
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
            &qemu::command_line(),
            &guest.memory.to_string(),
        ])
    }

    fn stored_snapshot(&self, guest: &Guest, accel: Accel) -> Option<Entry<SnapshotInfo>> {
        guest.cache.entry(SNAPSHOTS, &self.key(guest, accel))
    }

    /// Returns the stored snapshot, or boots a guest and stores one. Tests KVM if necessary.
    async fn provide_snapshot(
        &self,
        guest: &Guest,
    ) -> Result<(Accel, Entry<SnapshotInfo>), GuestError> {
        // One boot at a time for each kernel: a process that waited finds the snapshot that the
        // other process created.
        let _lock = guest.cache.lock(SNAPSHOTS, guest.kernel.key()).await?;
        if let Some(accel) = self.accel.or_else(|| tested_accel(guest, &self.qemu)) {
            return match self.stored_snapshot(guest, accel) {
                Some(kept) => Ok((accel, kept)),
                None => Ok((accel, self.boot(guest, accel, guest.deadlines.boot).await?)),
            };
        }
        let result = self.boot(guest, Accel::Kvm, guest.deadlines.kvm_test).await;
        let (accel, kept) = match result {
            Ok(kept) => (Accel::Kvm, kept),
            Err(error) if error.is_loss() => {
                tracing::info!("KVM does not work on this machine: {error}");
                let kept = self.boot(guest, Accel::Tcg, guest.deadlines.boot).await?;
                (Accel::Tcg, kept)
            }
            Err(error) => return Err(error),
        };
        let note = AccelNote {
            boot: boot_id(),
            version: self.qemu.version.clone(),
            accel,
            root: geteuid().is_root(),
        };
        guest.cache.store_note("accel.json", &note)?;
        Ok((accel, kept))
    }

    /// Boots a guest and stores its snapshot. The caller holds the lock of the kernel's snapshots.
    async fn boot(
        &self,
        guest: &Guest,
        accel: Accel,
        limit: Duration,
    ) -> Result<Entry<SnapshotInfo>, GuestError> {
        let cache = &guest.cache;
        let key = self.key(guest, accel);
        tracing::info!("booting {} with {}", guest.release(), accel.name());
        let new_entry = cache.new_entry_directory(SNAPSHOTS, &key)?;
        let (files, _) = userland::collect_files(&guest.program, &guest.programs())?;
        let mut archive = fs::read(guest.kernel.directory.join(ARCHIVE_FILE))
            .map_err(cache.error_of("read a kernel's modules"))?;
        files
            .write(&mut archive)
            .map_err(cache.error_of("write a guest's file system"))?;
        let kernel = fs::read(guest.kernel.directory.join(KERNEL_FILE))
            .map_err(cache.error_of("read a guest's kernel"))?;
        // The files may belong to another user than QEMU's.
        let sealed = |contents: Vec<u8>| {
            snapshot::create_sealed(&contents).map_err(cache.error_of("create a memory file"))
        };
        let (kernel, initramfs) = (sealed(kernel)?, sealed(archive)?);
        let nameless =
            || snapshot::create_unnamed().map_err(cache.error_of("create a memory file"));
        let (memory, state) = (nameless()?, nameless()?);
        let path = snapshot::path_of(&memory);
        let start = StartMode::Boot {
            kernel: snapshot::path_of(&kernel),
            initramfs: snapshot::path_of(&initramfs),
        };
        let descriptors = [memory.as_fd(), kernel.as_fd(), initramfs.as_fd()];
        let mut running = RunningMachine::start(
            &self.qemu,
            accel,
            (MemorySource::Kept(path), guest.memory),
            start,
            &descriptors,
        )?;
        wait_until_ready(&mut running, guest.release(), limit).await?;
        running.control().await?.save(state.as_fd()).await?;
        running.end().await;
        snapshot::write_snapshot(memory, state, new_entry.path())
            .map_err(cache.error_of("store a snapshot"))?;
        let about = SnapshotInfo {
            release: guest.release().to_owned(),
            kernel: guest.kernel.key().to_owned(),
        };
        let kept = cache.store(SNAPSHOTS, &key, new_entry, about)?;
        prune(cache, guest.kernel.key(), &key);
        Ok(kept)
    }
}

/// Waits until the agent of a booting guest is ready.
async fn wait_until_ready(
    running: &mut RunningMachine,
    kernel: &str,
    limit: Duration,
) -> Result<(), GuestError> {
    let event = {
        let mut events = FramedRead::new(&mut running.agent, event_framing());
        tokio::time::timeout(limit, events.next()).await
    };
    match event {
        Ok(Some(Ok(frame))) if matches!(read_event(&frame), Ok(Event::Ready { .. })) => Ok(()),
        Err(_) => {
            let output = running.output();
            running.end().await;
            Err(GuestError::NotReady {
                kernel: kernel.to_owned(),
                limit,
                output,
            })
        }
        // The guest has ended, or its messages are invalid.
        Ok(other) => {
            let operation = "connect to the agent".to_owned();
            let reply = match other {
                Some(Ok(_)) => "unexpected message".to_owned(),
                _ => "no valid message".to_owned(),
            };
            let error = GuestError::QmpFailed {
                command: operation,
                reply,
            };
            Err(running.loss_error(kernel, error).await)
        }
    }
}

/// Resumes a guest from a snapshot.
async fn resume(
    guest: &Guest,
    qemu: &Qemu,
    accel: Accel,
    kept: &Entry<SnapshotInfo>,
) -> Result<Agent, KernelError> {
    let state = fs::File::open(kept.directory.join(STATE_FILE))
        .map_err(guest.cache.error_of("read a snapshot"))?;
    let memory = guest.snapshot_memory(kept)?;
    let file = memory.file();
    let copy = (MemorySource::CopyOf(snapshot::path_of(file)), guest.memory);
    let descriptors = [file.as_fd()];
    let mut running = RunningMachine::start(qemu, accel, copy, StartMode::Resume, &descriptors)?;
    let listener = running.take_listener();
    let loaded = match memory.provide(listener, running.control()).await {
        Ok(Ok(mut control)) => control.load(state.as_fd()).await,
        Ok(Err(error)) => Err(error),
        Err(error) => {
            guest.discard_memory();
            return Err(guest.cache.error_of("read a snapshot")(error).into());
        }
    };
    if let Err(error) = loaded {
        // The end of QEMU describes the cause better than the failed command.
        return Err(running.loss_error(guest.release(), error).await.into());
    }
    let process = running.process();
    let (stream, exit_info, kill) = running.into_agent();
    let (events, requests) = stream.into_split();
    let options = ConnectOptions {
        max_start: guest.deadlines.restore,
        first_request: Some(clock_request(guest)?),
        keepalive: Some(Keepalive {
            interval: guest.deadlines.silence / KEEPALIVES_PER_SILENCE,
            max_silence: guest.deadlines.silence,
        }),
    };
    Agent::new(events, requests, exit_info, kill, process, options).await
}

/// Returns the request with the current time and a random seed.
fn clock_request(guest: &Guest) -> Result<Request, GuestError> {
    use std::io::Read as _;
    let mut seed = [0; 32];
    fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut seed))
        .map_err(guest.cache.error_of("read random numbers"))?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the clock of the guest is set to the time of day"
    )]
    let now = SystemTime::now();
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Request::SetClock { now, seed })
}

/// Returns the QEMU of this machine. Its version and features are read once.
async fn installed_qemu(guest: &Guest) -> Result<Qemu, GuestError> {
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
pub async fn kvm(guest: &Guest) -> Result<Kvm, GuestError> {
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
fn tested_accel(guest: &Guest, qemu: &Qemu) -> Option<Accel> {
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

/// Removes all but the latest snapshots of a kernel. A snapshot in use stays usable, because its
/// files are open. The snapshot that was just created is kept regardless of the clock, which may
/// have been set back since others were created.
fn prune(cache: &Cache, kernel: &str, new_key: &str) {
    let mut older: Vec<(SystemTime, String)> = snapshots_of_kernel(cache, kernel)
        .into_iter()
        .filter(|(key, _)| key != new_key)
        .filter_map(|(key, entry)| {
            let made = fs::metadata(entry.directory.join(STATE_FILE)).ok()?;
            Some((made.modified().ok()?, key))
        })
        .collect();
    older.sort();
    let excess = (older.len() + 1).saturating_sub(MAX_SNAPSHOTS);
    for (_, key) in older.into_iter().take(excess) {
        // A snapshot that cannot be removed now is removed another time.
        let _ = cache.remove(SNAPSHOTS, &key);
    }
}

/// Returns the snapshots of a kernel with their keys. `kernel` is the key of the kernel.
pub fn snapshots_of_kernel(cache: &Cache, kernel: &str) -> Vec<(String, Entry<SnapshotInfo>)> {
    cache
        .keys(SNAPSHOTS)
        .into_iter()
        .filter_map(|key| {
            let entry: Entry<SnapshotInfo> = cache.peek(SNAPSHOTS, &key)?;
            (entry.metadata.kernel == kernel).then_some((key, entry))
        })
        .collect()
}

/// Returns the ID of the current boot of the host.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Returns the processor's model and flags, which a guest with KVM sees.
fn processor() -> String {
    let text = fs::read_to_string(Path::new("/proc/cpuinfo")).unwrap_or_default();
    text.lines()
        .filter(|line| line.starts_with("model name") || line.starts_with("flags"))
        .take(2)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores a snapshot that is `days` days older than the machine's clock.
    fn store_snapshot(cache: &Cache, key: &str, days: u64) {
        let made = cache.new_entry_directory(SNAPSHOTS, key).unwrap();
        let state = fs::File::create(made.path().join(STATE_FILE)).unwrap();
        let now = state.metadata().unwrap().modified().unwrap();
        let then = now - Duration::from_secs(days * 86_400);
        state.set_modified(then).unwrap();
        let about = SnapshotInfo {
            release: "6.12.1".to_owned(),
            kernel: "6.12.1".to_owned(),
        };
        cache.store(SNAPSHOTS, key, made, about).unwrap();
    }

    #[test]
    fn prune_removes_oldest_and_keeps_new_snapshot() {
        for (days, left) in [
            ([4, 3, 2, 1, 0], ["c", "d", "new"]),
            // The clock was set back by 10 days before the last snapshot was created.
            ([4, 3, 2, 1, 10], ["c", "d", "new"]),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let cache = Cache::open(directory.path().to_owned()).unwrap();
            for (key, days) in ["a", "b", "c", "d", "new"].iter().zip(days) {
                store_snapshot(&cache, key, days);
            }
            prune(&cache, "6.12.1", "new");
            assert_eq!(cache.keys(SNAPSHOTS), left);
        }
    }
}
