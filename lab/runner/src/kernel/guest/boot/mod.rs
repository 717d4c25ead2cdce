//! Starts a guest and connects to its agent. Resumes a snapshot if there is one; else boots once
//! and stores a snapshot.

mod inputs;
mod installed_qemu;
mod kvm;

use std::fs;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt as _;
use tokio_util::codec::FramedRead;

use super::Guest;
use super::cache::CacheEntry;
use super::image::{ARCHIVE_FILE, KERNEL_FILE};
use super::initramfs::userland;
use super::qemu::machine::RunningMachine;
use super::qemu::{Accel, MemorySource, Qemu, StartMode};
use super::snapshot::{self, SNAPSHOTS, STATE_FILE, SnapshotInfo};
use crate::kernel::agent::blocking::run_blocking;
use crate::kernel::agent::{Agent, ConnectOptions, Keepalive, cpu_wait};
use crate::kernel::error::KernelError;
use crate::kernel::error::guest::GuestError;
use inputs::BuildInputs;
use svclab_model::protocol::{Event, Request, event_framing, read_event};

pub use kvm::Kvm;
pub(super) use kvm::kvm;

/// Number of keepalive requests within the maximum silence of an agent.
const KEEPALIVES_PER_SILENCE: u32 = 4;

/// Starts a guest, from its snapshot if possible.
pub(super) async fn start(guest: &Guest) -> Result<Agent, KernelError> {
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
pub(super) async fn boot(guest: &Guest) -> Result<(), KernelError> {
    BuildInputs::determine(guest)
        .await?
        .provide_snapshot(guest)
        .await?;
    Ok(())
}

impl BuildInputs {
    /// Returns the stored snapshot, or boots a guest and stores one. Tests KVM if necessary.
    async fn provide_snapshot(
        &self,
        guest: &Guest,
    ) -> Result<(Accel, CacheEntry<SnapshotInfo>), GuestError> {
        // One boot at a time for each kernel: a process that waited finds the snapshot that the
        // other process created.
        let _lock = guest.cache.lock(SNAPSHOTS, guest.kernel.key()).await?;
        if let Some(accel) = self.accel.or_else(|| kvm::tested_accel(guest, &self.qemu)) {
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
        kvm::store_result(guest, &self.qemu, accel)?;
        Ok((accel, kept))
    }

    /// Boots a guest and stores its snapshot. The caller holds the lock of the kernel's snapshots.
    async fn boot(
        &self,
        guest: &Guest,
        accel: Accel,
        limit: Duration,
    ) -> Result<CacheEntry<SnapshotInfo>, GuestError> {
        let cache = &guest.cache;
        let key = self.key(guest, accel);
        tracing::info!("booting {} with {}", guest.release(), accel.name());
        let new_entry = cache.new_entry_directory(SNAPSHOTS, &key)?;
        // The files may belong to another user than QEMU's.
        let kernel = fs::read(guest.kernel.directory.join(KERNEL_FILE))
            .map_err(cache.error_of("read a guest's kernel"))?;
        let kernel = seal(kernel)?;
        let initramfs = {
            let guest = guest.clone();
            seal(run_blocking(move || initramfs(&guest)).await?)?
        };
        let (memory, state) = (snapshot::create_unnamed()?, snapshot::create_unnamed()?);
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
        snapshot::prune(cache, guest.kernel.key(), &key);
        Ok(kept)
    }
}

/// Returns the first file system of a guest: the modules of its kernel and its programs.
fn initramfs(guest: &Guest) -> Result<Vec<u8>, GuestError> {
    let cache = &guest.cache;
    let (files, _) = userland::collect_files(&guest.program, &guest.programs())?;
    let mut archive = fs::read(guest.kernel.directory.join(ARCHIVE_FILE))
        .map_err(cache.error_of("read a kernel's modules"))?;
    files
        .write(&mut archive)
        .map_err(cache.error_of("write a guest's file system"))?;
    Ok(archive)
}

/// Moves contents to a sealed file, so that they are in memory once.
fn seal(contents: Vec<u8>) -> Result<OwnedFd, GuestError> {
    let sealed = snapshot::create_sealed(&contents);
    drop(contents);
    sealed
}

/// Waits until the agent of a booting guest is ready, at most for the time limit without the time
/// in which QEMU waits for a processor.
async fn wait_until_ready(
    running: &mut RunningMachine,
    kernel: &str,
    limit: Duration,
) -> Result<(), GuestError> {
    let process = running.process();
    let event = {
        let mut events = FramedRead::new(&mut running.agent, event_framing());
        cpu_wait::within_cpu_time(process, limit, events.next()).await
    };
    match event {
        Some(Some(Ok(frame))) if matches!(read_event(&frame), Ok(Event::Ready { .. })) => Ok(()),
        None => {
            let output = running.output();
            running.end().await;
            Err(GuestError::NotReady {
                kernel: kernel.to_owned(),
                limit,
                output,
            })
        }
        // The guest has ended, or its messages are invalid.
        Some(other) => {
            let reply = match other {
                Some(Ok(_)) => "unexpected message",
                _ => "no valid message",
            };
            let error = GuestError::QmpFailed {
                command: "connect to the agent".to_owned(),
                reply: reply.to_owned(),
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
    kept: &CacheEntry<SnapshotInfo>,
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
            return Err(snapshot::copy_error(&guest.cache, error).into());
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
        first_request: Some(clock_request()?),
        keepalive: Some(Keepalive {
            interval: guest.deadlines.silence / KEEPALIVES_PER_SILENCE,
            max_silence: guest.deadlines.silence,
        }),
    };
    Agent::new(events, requests, exit_info, kill, process, options).await
}

/// Returns the request with the current time and a random seed.
fn clock_request() -> Result<Request, GuestError> {
    let mut seed = [0; 32];
    fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut seed))
        .map_err(GuestError::Random)?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the clock of the guest is set to the time of day"
    )]
    let now = SystemTime::now();
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Request::SetClock { now, seed })
}
