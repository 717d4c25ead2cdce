//! Manages the tenants that run the programs of labs: a separate user in a PID namespace without
//! the agent. If only one user is mapped, as for a caller other than root, programs run as the
//! agent's user. Each lab then has its own room.
//!
//! A program cannot inspect the agent, even with the same user: the program has fewer capabilities
//! than the agent (Linux v6.12, `security/commoncap.c`, `cap_ptrace_access_check`, which applies to
//! `ptrace`, `pidfd_getfd`, `process_vm_writev`, `kcmp` and `/proc/PID/{mem,fd,environ}`).

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::rc::Rc;

use crate::sandbox::child_task;
use crate::sandbox::filter::Filter;
use crate::sandbox::program_namespace::ProgramNamespace;

thread_local! {
    static RESOURCES: OnceCell<TenantResources> = const { OnceCell::new() };
}

/// Group that may read the kernel's list of legacy tables, which `iptables-legacy-save` needs
/// (Linux v6.12, `net/netfilter/x_tables.c`, `xt_proto_init`: mode 0440, owned by root of the
/// namespace). Programs get only the root group of a user namespace or of a guest.
const ROOT_GROUP: u32 = 0;

/// Resources of the agent for the programs of all labs.
struct TenantResources {
    /// Room shared by all labs whose programs have their own users.
    shared: Option<Rc<ProgramNamespace>>,
    users: Range<u32>,
    /// Group of all programs; `None` if each user has its own group.
    group: Option<u32>,
    /// Users assigned to labs.
    assigned_users: RefCell<BTreeSet<u32>>,
    filter: Rc<Filter>,
}

/// Prepares the agent to run programs as these users. The range is empty if only the agent's own
/// user is mapped. Must be called once, before any other thread runs.
pub(crate) fn prepare(users: Range<u32>, seals_settings: bool) -> nix::Result<()> {
    let shared = if users.is_empty() {
        None
    } else {
        Some(Rc::new(ProgramNamespace::new(seals_settings)?))
    };
    RESOURCES.with(|resources| {
        let _ = resources.set(TenantResources {
            shared,
            users,
            group: (!seals_settings).then_some(ROOT_GROUP),
            assigned_users: RefCell::default(),
            filter: Rc::new(Filter::for_programs()),
        });
    });
    Ok(())
}

/// Tenant that runs the programs of one lab or of the agent itself. Dropping the last clone kills
/// processes that the programs left running.
#[derive(Debug, Clone)]
pub(crate) struct Tenant(Rc<TenantState>);

#[derive(Debug)]
struct TenantState {
    room: Rc<ProgramNamespace>,
    user: Option<u32>,
    group: Option<u32>,
    filter: Rc<Filter>,
    /// Whether a program was started that may have left processes running.
    has_run: Cell<bool>,
    /// Whether a program was started by a user of the running lab.
    has_attached: Cell<bool>,
}

impl Tenant {
    /// Creates a tenant with its own user or its own room.
    ///
    /// # Errors
    ///
    /// When the kernel rejects the room, or the agent was not prepared.
    pub(crate) fn new() -> std::io::Result<Self> {
        let unprepared =
            || std::io::Error::other("the agent has not prepared an environment for programs");
        RESOURCES.with(|resources| {
            let resources = resources.get().ok_or_else(unprepared)?;
            let (room, user) = match &resources.shared {
                Some(room) => (Rc::clone(room), Some(resources.assign_user())),
                None => (Rc::new(ProgramNamespace::new(false)?), None),
            };
            Ok(Self(Rc::new(TenantState {
                room,
                user,
                group: resources.group.or(user),
                filter: Rc::clone(&resources.filter),
                has_run: Cell::new(false),
                has_attached: Cell::new(false),
            })))
        })
    }

    pub(crate) fn room(&self) -> &ProgramNamespace {
        &self.0.room
    }

    /// Returns the user of the programs, or `None` if they run as the agent's user.
    pub(crate) fn user(&self) -> Option<u32> {
        self.0.user
    }

    /// Returns the group of the programs, or `None` if they run as the agent's user.
    pub(crate) fn group(&self) -> Option<u32> {
        self.0.group.filter(|_| self.0.user.is_some())
    }

    pub(crate) fn filter(&self) -> &Filter {
        &self.0.filter
    }

    /// Returns the number of processes and threads of the programs.
    pub(crate) fn count_processes(&self) -> u64 {
        let Ok(entries) = std::fs::read_dir("/proc") else {
            return 0;
        };
        let count_threads = |entry: std::fs::DirEntry| -> Option<u64> {
            entry.file_name().to_str()?.parse::<u32>().ok()?;
            let is_own = match self.0.user {
                Some(user) => entry.metadata().ok()?.uid() == user,
                None => entry.path().join("ns/pid").metadata().ok()?.ino() == self.room().inode(),
            };
            // The link count is one per thread, plus 2 for the directory itself.
            let threads = entry.path().join("task").metadata().ok()?.nlink();
            is_own.then(|| threads.saturating_sub(2).max(1))
        };
        entries.flatten().filter_map(count_threads).sum()
    }

    /// Kills all programs.
    pub(crate) fn kill_programs(&self) {
        let _ = child_task::kill_all(&self.0.room, self.0.user);
    }

    /// Records that a program selected by the user was started.
    pub(crate) fn note_user_program(&self) {
        self.0.has_run.set(true);
    }

    /// Records that a user of the running lab started a program.
    pub(crate) fn note_attached_program(&self) {
        self.note_user_program();
        self.0.has_attached.set(true);
    }

    /// Whether a user of the running lab has started a program. The program may have changed the
    /// lab, and may have left processes running.
    pub(crate) fn has_attached_programs(&self) -> bool {
        self.0.has_attached.get()
    }
}

impl TenantResources {
    /// Assigns a free user. There are more users than parallel labs.
    fn assign_user(&self) -> u32 {
        let mut taken = self.assigned_users.borrow_mut();
        let free = self.users.clone().find(|user| !taken.contains(user));
        let user = free.unwrap_or(self.users.start);
        taken.insert(user);
        user
    }
}

impl Drop for TenantState {
    fn drop(&mut self) {
        let Some(user) = self.user else {
            // Dropping the room kills all processes in it.
            return;
        };
        if self.has_run.get() {
            let _ = child_task::kill_all(&self.room, self.user);
        }
        RESOURCES.with(|resources| {
            if let Some(house) = resources.get() {
                house.assigned_users.borrow_mut().remove(&user);
            }
        });
    }
}
