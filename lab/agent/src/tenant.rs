//! Who runs the programs of one lab: a user of their own, in a room that the agent is
//! not in. Where only one user is mapped, which is so for a caller without root, programs
//! have the agent's user, and each lab a room.
//!
//! A program cannot look into the agent, whichever user it has: it holds fewer
//! capabilities than the agent (Linux v6.12, `security/commoncap.c`,
//! `cap_ptrace_access_check`, which `ptrace`, `pidfd_getfd`, `process_vm_writev`, `kcmp`
//! and `/proc/PID/{mem,fd,environ}` all ask).

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

/// The group that may read what the kernel lists of legacy tables, which
/// `iptables-legacy-save` goes by (Linux v6.12, `net/netfilter/x_tables.c`,
/// `xt_proto_init`: mode 0440, of the root of the namespace). Only a user namespace's, or
/// a guest's, is given to programs.
const GROUP_OF_ROOT: u32 = 0;

/// What the agent has for all of its labs' programs.
struct House {
    /// The room of all labs whose programs have users of their own.
    shared: Option<Rc<Room>>,
    users: Range<u32>,
    /// The group of all programs; `None` where each user has one of its own.
    group: Option<u32>,
    /// Users that a lab has.
    taken: RefCell<BTreeSet<u32>>,
    filter: Rc<Filter>,
}

/// Prepares the agent to run programs as these users; none of them where only the agent's
/// own user is mapped. Must be called once, before any other thread runs.
///
/// # Errors
///
/// What the kernel refused.
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

/// Who runs the programs of one lab, or of the agent itself. Dropping the last copy ends
/// what they left running.
#[derive(Debug, Clone)]
pub struct Tenant(Rc<Tenancy>);

#[derive(Debug)]
struct Tenancy {
    room: Rc<Room>,
    user: Option<u32>,
    group: Option<u32>,
    filter: Rc<Filter>,
    /// Whether a program was started that may have left others running.
    has_run: Cell<bool>,
}

impl Tenant {
    /// A tenant with a user, or a room, that no other one has.
    ///
    /// # Errors
    ///
    /// When the kernel refuses a room, or the agent was not prepared.
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

    /// The user of its programs; none where they have the agent's.
    pub fn user(&self) -> Option<u32> {
        self.0.user
    }

    /// The group of its programs, where they have a user of their own.
    pub fn group(&self) -> Option<u32> {
        self.0.group.filter(|_| self.0.user.is_some())
    }

    pub fn filter(&self) -> &Filter {
        &self.0.filter
    }

    /// Returns how many processes and threads its programs are.
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
            // A directory for each thread, and two names for it and the one above it.
            let threads = entry.path().join("task").metadata().ok()?.nlink();
            is_own.then(|| threads.saturating_sub(2).max(1))
        };
        all.flatten().filter_map(of_process).sum()
    }

    /// Ends all of its programs.
    pub fn end_programs(&self) {
        let _ = launch::end_all(&self.0.room, self.0.user);
    }

    /// Notes that a program is started that is not svclab's choice.
    pub fn runs(&self) {
        self.0.has_run.set(true);
    }
}

impl House {
    /// A user that no lab has. There are more of them than labs at once.
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
            // The room ends with it, and all that is in there.
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
