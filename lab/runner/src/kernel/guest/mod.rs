//! Kernels of guests. They run plans that this host's kernel cannot run, or that must run in
//! another kernel. QEMU boots a distribution's kernel, which starts svclab's agent as its first
//! process. A guest that has booted once is stored as a snapshot, and later guests resume from it.

mod boot;
mod cache;
mod image;
pub(super) mod initramfs;
mod key;
mod qemu;
mod snapshot;
mod store;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use boot::Kvm;
pub use cache::{Cache, CacheEntry, Lock, find_directory};
pub use image::Image;
pub use image::package::{Package, available, series};
use initramfs::userland;
pub use key::cache_key;
pub use qemu::Accel;
pub use qemu::confine::DisallowedLayers;
pub use snapshot::SNAPSHOTS;
use snapshot::{SnapshotInfo, SnapshotMemory};
pub use store::{
    KERNELS, KernelRequest, cached_kernels, every_series, fetch, find_package, find_undamaged,
    matches, provide, remove, snapshots,
};

use super::agent::Agent;
use super::agent_program;
use super::error::KernelError;
use super::error::guest::GuestError;
use super::requirements::lab_memory::DEFAULT_MEMORY_MIB;
use super::requirements::{MissingRequirements, Modules};
use svclab_model::plan::Plan;
use svclab_planner::requirements::Requirements;

/// Checks that `PATH` contains QEMU. Its version is checked later.
///
/// # Errors
///
/// When there is no QEMU.
pub fn check_qemu() -> Result<(), GuestError> {
    qemu::find_qemu(std::env::var_os("PATH").as_deref()).map(drop)
}

/// Returns the version of this machine's QEMU, and the parts of QEMU's confinement that this
/// machine does not support.
///
/// # Errors
///
/// When QEMU is missing, or guests cannot use it.
pub async fn qemu_version() -> Result<(String, DisallowedLayers), GuestError> {
    let path = qemu::find_qemu(std::env::var_os("PATH").as_deref())?;
    let (qemu, lacks) = qemu::inspect(&path).await?;
    Ok((qemu.version, lacks))
}

/// Time limits of a guest. Time in which QEMU waits for a processor does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// From the start of QEMU until the agent is ready, for a guest that boots.
    pub boot: Duration,
    /// Like `boot`, for the one boot that tests KVM. A boot takes 1 s with KVM; if KVM does not
    /// work, it never ends.
    pub kvm_test: Duration,
    /// From the start of QEMU until the agent answers, for a guest that resumes from a snapshot.
    pub restore: Duration,
    /// Maximum silence of an agent that receives keepalive requests.
    pub silence: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            boot: Duration::from_secs(90),
            kvm_test: Duration::from_secs(10),
            restore: Duration::from_secs(30),
            silence: Duration::from_secs(30),
        }
    }
}

/// Digest of a snapshot, and its memory.
type SharedMemory = (String, Arc<SnapshotMemory>);

/// Guest with one kernel. Each [`Guest::start`] starts a separate clone.
#[derive(Debug, Clone)]
pub struct Guest {
    cache: Cache,
    kernel: CacheEntry<Image>,
    modules: Arc<Modules>,
    program: PathBuf,
    /// Programs in addition to those that labs need.
    additional_programs: Vec<PathBuf>,
    /// Memory in MiB.
    memory: u32,
    /// Part of the memory that is for labs in addition to the default, in MiB.
    additional_memory: u32,
    deadlines: Deadlines,
    /// Memory of the snapshot that was resumed last, with its digest.
    shared: Arc<Mutex<Option<SharedMemory>>>,
}

impl Guest {
    /// Creates a guest with the requested kernel and the agent that [`agent_program::find`]
    /// returns. The kernel is downloaded if the cache does not contain it.
    ///
    /// # Errors
    ///
    /// When the kernel is not available.
    pub async fn new(cache: Cache, wanted: &KernelRequest) -> Result<Self, GuestError> {
        Self::with_agent(cache, wanted, agent_program::expected_path()).await
    }

    /// Creates a guest with another agent program.
    ///
    /// # Errors
    ///
    /// When the kernel is not available.
    pub async fn with_agent(
        cache: Cache,
        wanted: &KernelRequest,
        program: PathBuf,
    ) -> Result<Self, GuestError> {
        let kernel = provide(&cache, wanted).await?;
        let modules = Arc::new(image::modules(&kernel.metadata, &kernel.directory));
        Ok(Self {
            cache,
            kernel,
            modules,
            program,
            additional_programs: Vec::new(),
            memory: DEFAULT_MEMORY_MIB,
            additional_memory: 0,
            deadlines: Deadlines::default(),
            shared: Arc::default(),
        })
    }

    /// Sets other time limits.
    #[must_use]
    pub fn with_deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// Adds programs of this machine, at their paths here. [`crate::kernel::Session::run`] and
    /// [`crate::kernel::Session::start`] start them. The file system of a guest is in its memory,
    /// so large programs need [`Guest::with_memory`].
    #[must_use]
    pub fn with_programs(mut self, programs: impl IntoIterator<Item = PathBuf>) -> Self {
        self.additional_programs.extend(programs);
        self
    }

    /// Sets the part of the memory that is for labs in addition to the default, in MiB.
    #[must_use]
    pub fn with_additional_memory(mut self, mebibytes: u32) -> Self {
        self.additional_memory = mebibytes;
        self
    }

    /// Returns the part of the memory that is for labs in addition to the default, in MiB.
    #[must_use]
    pub const fn additional_memory(&self) -> u32 {
        self.additional_memory
    }

    /// Sets the memory in MiB, in place of [`DEFAULT_MEMORY_MIB`]. Files may use half of it.
    #[must_use]
    pub fn with_memory(mut self, mebibytes: u32) -> Self {
        self.memory = mebibytes;
        self
    }

    /// Returns the paths of its programs, which are the same here and in the guest.
    fn programs(&self) -> Vec<PathBuf> {
        let mut programs = userland::installed_programs();
        programs.extend(self.additional_programs.iter().cloned());
        programs
    }

    /// Returns the memory of a snapshot, which all guests that resume from it share.
    fn snapshot_memory(
        &self,
        snapshot: &CacheEntry<SnapshotInfo>,
    ) -> Result<Arc<SnapshotMemory>, GuestError> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((digest, memory)) = &*shared
            && *digest == snapshot.digest
        {
            return Ok(Arc::clone(memory));
        }
        let memory = Arc::new(SnapshotMemory::new(&self.cache, &snapshot.directory)?);
        *shared = Some((snapshot.digest.clone(), Arc::clone(&memory)));
        Ok(memory)
    }

    /// Makes the next guest copy its memory again.
    fn discard_memory(&self) {
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the release of the kernel: `6.12.117+deb12-cloud-amd64`.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.kernel.metadata.release
    }

    /// Returns the cache entry of the kernel.
    #[must_use]
    pub const fn kernel(&self) -> &CacheEntry<Image> {
        &self.kernel
    }

    /// Checks that the guest meets the requirements of a plan.
    ///
    /// # Errors
    ///
    /// When a requirement is not met. The error has the requester.
    pub fn check_plan(&self, plan: &Plan) -> Result<(), MissingRequirements> {
        self.check_requirements(&Requirements::from_plan(plan))
    }

    /// Checks that the guest meets requirements, which may be those of several plans.
    ///
    /// # Errors
    ///
    /// When a requirement is not met. The error has the requester.
    pub fn check_requirements(&self, needs: &Requirements) -> Result<(), MissingRequirements> {
        let installed = self.programs();
        let has_program = |name: &str| {
            installed.iter().any(|path| {
                path == Path::new(name) || path.file_name().is_some_and(|file| file == name)
            })
        };
        // The agent is root in the guest.
        let root = || Ok(());
        MissingRequirements::check(needs, &self.modules, has_program, root)
    }

    /// Returns the state of KVM on this machine. After a start, this is the result of the start.
    ///
    /// # Errors
    ///
    /// When QEMU is missing, or the cache cannot be written.
    pub async fn kvm(&self) -> Result<Kvm, GuestError> {
        boot::kvm(self).await
    }

    /// Boots a guest and stores its snapshot, unless a snapshot is stored already. The first start
    /// does the same.
    ///
    /// # Errors
    ///
    /// When QEMU is missing, the guest does not become ready, or the cache cannot be written.
    pub async fn boot(&self) -> Result<(), KernelError> {
        boot::boot(self).await
    }

    /// Starts a guest and waits until its agent is ready.
    ///
    /// # Errors
    ///
    /// When QEMU is missing, the guest does not become ready, or the cache cannot be written.
    pub async fn start(&self) -> Result<Agent, KernelError> {
        boot::start(self).await
    }
}
