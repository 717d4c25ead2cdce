//! A guest's kernel: a place to run plans that this host's kernel cannot, or
//! that are to be tried in another. QEMU boots a distribution's kernel, which
//! starts svclab's agent as its first process; a guest that has booted once is
//! kept as a snapshot, and later ones go on from there.

mod boot;
mod cache;
mod confine;
mod console;
mod digest;
mod elf;
mod error;
mod image;
mod initramfs;
mod key;
mod machine;
mod modinfo;
mod package;
mod process;
mod qemu;
mod qmp;
mod snapshot;
mod store;
mod tree;
mod userland;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use boot::{Kvm, SNAPSHOTS};
pub use cache::{Cache, Entry, Lock, locate};
pub use confine::Lacks;
pub use error::GuestError;
pub use image::Image;
pub use key::key;
pub use package::{Package, available, series};
pub use qemu::{Accel, MEMORY, PROGRAM as QEMU};
use snapshot::{About, Shared};
pub use store::{
    KERNELS, Wanted, every_series, fetch, find, kept, matches, provide, remove, snapshots, whole,
};

use super::agent::Agent;
use super::agent_program;
use super::error::KernelError;
use super::missing::Missing;
use super::modules::Modules;
use svclab_model::plan::Plan;
use svclab_planner::needs::Needs;

/// Whether there is a QEMU at all, by `PATH`; which one is found out later.
///
/// # Errors
///
/// When there is none.
pub fn look_for_qemu() -> Result<(), GuestError> {
    qemu::find(std::env::var_os("PATH").as_deref()).map(drop)
}

/// The version of this machine's QEMU, and what this machine refuses of the
/// confinement that QEMU runs in.
///
/// # Errors
///
/// When there is none, or it is none that guests can use.
pub async fn qemu_version() -> Result<(String, Lacks), GuestError> {
    let path = qemu::find(std::env::var_os("PATH").as_deref())?;
    let (qemu, lacks) = qemu::inspect(&path).await?;
    Ok((qemu.version, lacks))
}

/// How long a guest may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// From QEMU's start until the agent is ready, when it boots.
    pub boot: Duration,
    /// The same for the one boot that tries KVM: by KVM a boot takes a second,
    /// and where KVM does not work it takes for ever.
    pub trial: Duration,
    /// From QEMU's start until the agent answers, when it goes on from a
    /// snapshot.
    pub restore: Duration,
    /// How long an agent may be silent that is asked every so often whether it
    /// lives.
    pub silence: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            boot: Duration::from_secs(90),
            trial: Duration::from_secs(10),
            restore: Duration::from_secs(30),
            silence: Duration::from_secs(30),
        }
    }
}

/// The digest of a snapshot, and its memory.
type SharedMemory = (String, Arc<Shared>);

/// A guest with a certain kernel; each [`Guest::start`] is a clone of its own.
#[derive(Debug, Clone)]
pub struct Guest {
    cache: Cache,
    kernel: Entry<Image>,
    modules: Arc<Modules>,
    program: PathBuf,
    /// Programs besides those that labs need.
    further: Vec<PathBuf>,
    /// In MiB.
    memory: u32,
    /// How much of it is for labs besides what others have, in MiB.
    more: u32,
    deadlines: Deadlines,
    /// The memory of the snapshot that was last gone on from, by its digest.
    shared: Arc<Mutex<Option<SharedMemory>>>,
}

impl Guest {
    /// A guest with the kernel that is wanted, which is fetched if it is not
    /// kept, and the agent that [`agent_program::find`] returns.
    ///
    /// # Errors
    ///
    /// When the kernel is not to be had.
    pub async fn new(cache: Cache, wanted: &Wanted) -> Result<Self, GuestError> {
        Self::with_agent(cache, wanted, agent_program::expected()).await
    }

    /// A guest with another program as its agent.
    ///
    /// # Errors
    ///
    /// When the kernel is not to be had.
    pub async fn with_agent(
        cache: Cache,
        wanted: &Wanted,
        program: PathBuf,
    ) -> Result<Self, GuestError> {
        let kernel = provide(&cache, wanted).await?;
        let modules = Arc::new(image::modules(&kernel.about, &kernel.directory));
        Ok(Self {
            cache,
            kernel,
            modules,
            program,
            further: Vec::new(),
            memory: MEMORY,
            more: 0,
            deadlines: Deadlines::default(),
            shared: Arc::default(),
        })
    }

    /// The same guest with other deadlines.
    #[must_use]
    pub fn with_deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// The same guest with further programs of this machine's, where they lie
    /// here; [`crate::kernel::Session::run`] and [`crate::kernel::Session::start`]
    /// start them. Its file system lies in its memory: large ones need
    /// [`Guest::with_memory`].
    #[must_use]
    pub fn with_programs(mut self, programs: impl IntoIterator<Item = PathBuf>) -> Self {
        self.further.extend(programs);
        self
    }

    /// The same guest, of whose memory so many MiB are for labs besides what others have
    /// for them.
    #[must_use]
    pub fn with_more_room(mut self, mebibytes: u32) -> Self {
        self.more = mebibytes;
        self
    }

    /// How much more it has for labs than others, in MiB.
    #[must_use]
    pub const fn more_room(&self) -> u32 {
        self.more
    }

    /// The same guest with so many MiB of memory, of which half may be files, in
    /// place of [`MEMORY`].
    #[must_use]
    pub fn with_memory(mut self, mebibytes: u32) -> Self {
        self.memory = mebibytes;
        self
    }

    /// Where its programs lie, here as there.
    fn programs(&self) -> Vec<PathBuf> {
        let mut programs = userland::installed();
        programs.extend(self.further.iter().cloned());
        programs
    }

    /// The memory of a snapshot, one for all guests that go on from it.
    fn memory_of(&self, kept: &Entry<About>) -> Result<Arc<Shared>, GuestError> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((digest, memory)) = &*shared
            && *digest == kept.digest
        {
            return Ok(Arc::clone(memory));
        }
        let memory = Shared::new(&kept.directory).map_err(self.cache.cannot("read a snapshot"))?;
        let memory = Arc::new(memory);
        *shared = Some((kept.digest.clone(), Arc::clone(&memory)));
        Ok(memory)
    }

    /// Has the next guest copy its memory again.
    fn forget_memory(&self) {
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What its kernel calls itself: `6.12.117+deb12-cloud-amd64`.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.kernel.about.release
    }

    /// Its kernel as it is kept.
    #[must_use]
    pub const fn kernel(&self) -> &Entry<Image> {
        &self.kernel
    }

    /// Asks what a plan needs that the guest would not have.
    ///
    /// # Errors
    ///
    /// What is missing, with who asks for it.
    pub fn missing(&self, plan: &Plan) -> Result<(), Missing> {
        self.missing_of(&Needs::of(plan))
    }

    /// The same for what is not a plan's alone.
    ///
    /// # Errors
    ///
    /// What is missing, with who asks for it.
    pub fn missing_of(&self, needs: &Needs) -> Result<(), Missing> {
        let installed = self.programs();
        let has_program = |name: &str| {
            installed
                .iter()
                .any(|path| path.file_name().is_some_and(|file| file == name))
        };
        // The agent is root there.
        let root = || Ok(());
        Missing::check(needs, &self.modules, has_program, root)
    }

    /// What is known of KVM here; after a start that is how it ended.
    ///
    /// # Errors
    ///
    /// When there is no QEMU, or the cache cannot be written.
    pub async fn kvm(&self) -> Result<Kvm, GuestError> {
        boot::kvm(self).await
    }

    /// Boots a guest and keeps it, unless one is kept already: what the first
    /// start does.
    ///
    /// # Errors
    ///
    /// When there is no QEMU, the guest does not come up, or the cache cannot be
    /// written.
    pub async fn boot(&self) -> Result<(), KernelError> {
        boot::boot(self).await
    }

    /// Starts a guest and waits until its agent is ready.
    ///
    /// # Errors
    ///
    /// When there is no QEMU, the guest does not come up, or the cache cannot be
    /// written.
    pub async fn start(&self) -> Result<Agent, KernelError> {
        boot::start(self).await
    }
}
