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

use super::filter::Filter;
use super::launch;
use super::room::Room;

thread_local! {
    static HOUSE: OnceCell<House> = const { OnceCell::new() };
}

/// Group that may read the kernel's list of legacy tables, which `iptables-legacy-save` needs
/// (Linux v6.12, `net/netfilter/x_tables.c`, `xt_proto_init`: mode 0440, owned by root of the
/// namespace). Programs get only the root group of a user namespace or of a guest.
const GROUP_OF_ROOT: u32 = 0;

/// Resources of the agent for the programs of all labs.
struct House {
    /// Room shared by all labs whose programs have their own users.
    shared: Option<Rc<Room>>,
    users: Range<u32>,
    /// Group of all programs; `None` if each user has its own group.
    group: Option<u32>,
    /// Users assigned to labs.
    taken: RefCell<BTreeSet<u32>>,
    filter: Rc<Filter>,
}

/// Prepares the agent to run programs as these users. The range is empty if only the agent's own
/// user is mapped. Must be called once, before any other thread runs.
///
/// # Errors
///
/// When the kernel rejects a step.
pub fn prepare(users: Range<u32>, seals_settings: bool) -> nix::Result<()> {
    let shared = if users.is_empty() {
        None
    } else {
        Some(Rc::new(Room::new(seals_settings)?))
    };
    HOUSE.with(|house| {
        let _ = house.set(House {
            shared,
            users,
            group: (!seals_settings).then_some(GROUP_OF_ROOT),
            taken: RefCell::default(),
            filter: Rc::new(Filter::of_programs()),
        });
    });
    Ok(())
}

/// Tenant that runs the programs of one lab or of the agent itself. Dropping the last clone kills
/// processes that the programs left running.
#[derive(Debug, Clone)]
pub struct Tenant(Rc<Tenancy>);

#[derive(Debug)]
struct Tenancy {
    room: Rc<Room>,
    user: Option<u32>,
    group: Option<u32>,
    filter: Rc<Filter>,
    /// Whether a program was started that may have left processes running.
    has_run: Cell<bool>,
}

impl Tenant {
    /// Creates a tenant with its own user or its own room.
    ///
    /// # Errors
    ///
    /// When the kernel rejects the room, or the agent was not prepared.
    pub fn new() -> std::io::Result<Self> {
        let unprepared = || std::io::Error::other("nothing is prepared to run programs in");
        HOUSE.with(|house| {
            let house = house.get().ok_or_else(unprepared)?;
            let (room, user) = match &house.shared {
                Some(room) => (Rc::clone(room), Some(house.user())),
                None => (Rc::new(Room::new(false)?), None),
            };
            Ok(Self(Rc::new(Tenancy {
                room,
                user,
                group: house.group.or(user),
                filter: Rc::clone(&house.filter),
                has_run: Cell::new(false),
            })))
        })
    }

    pub fn room(&self) -> &Room {
        &self.0.room
    }

    /// Returns the user of the programs, or `None` if they run as the agent's user.
    pub fn user(&self) -> Option<u32> {
        self.0.user
    }

    /// Returns the group of the programs, or `None` if they run as the agent's user.
    pub fn group(&self) -> Option<u32> {
        self.0.group.filter(|_| self.0.user.is_some())
    }

    pub fn filter(&self) -> &Filter {
        &self.0.filter
    }

    /// Returns the number of processes and threads of the programs.
    pub fn processes(&self) -> u64 {
        let Ok(all) = std::fs::read_dir("/proc") else {
            return 0;
        };
        let of_process = |entry: std::fs::DirEntry| -> Option<u64> {
            entry.file_name().to_str()?.parse::<u32>().ok()?;
            let is_own = match self.0.user {
                Some(user) => entry.metadata().ok()?.uid() == user,
                None => entry.path().join("ns/pid").metadata().ok()?.ino() == self.room().number(),
            };
            // The link count is one per thread, plus 2 for the directory itself.
            let threads = entry.path().join("task").metadata().ok()?.nlink();
            is_own.then(|| threads.saturating_sub(2).max(1))
        };
        all.flatten().filter_map(of_process).sum()
    }

    /// Kills all programs.
    pub fn end_programs(&self) {
        let _ = launch::end_all(&self.0.room, self.0.user);
    }

    /// Records that a program selected by the user was started.
    pub fn runs(&self) {
        self.0.has_run.set(true);
    }
}

impl House {
    /// Assigns a free user. There are more users than parallel labs.
    fn user(&self) -> u32 {
        let mut taken = self.taken.borrow_mut();
        let free = self.users.clone().find(|user| !taken.contains(user));
        let user = free.unwrap_or(self.users.start);
        taken.insert(user);
        user
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        let Some(user) = self.user else {
            // Dropping the room kills all processes in it.
            return;
        };
        if self.has_run.get() {
            let _ = launch::end_all(&self.room, self.user);
        }
        HOUSE.with(|house| {
            if let Some(house) = house.get() {
                house.taken.borrow_mut().remove(&user);
            }
        });
    }
}
