//! Tests escape attempts of lab programs with agents of each privilege. This program starts itself
//! as a user, starts an agent, and runs itself as a program in the agent's labs.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use nix::unistd::geteuid;
use svclab_model::plan::{Namespace, Plan};
use svclab_runner::kernel::{Agent, Host, KernelError};

use super::copied::copied;
use super::guests::{block_on, guest};
use super::program::Whose;
use super::tenants::{self, are_apart_on_the_machine};

/// Argument that makes this program start the agent and run itself in labs.
pub const OUTSIDE: &str = "program-outside";

/// Last line of the output, printed once all attempts have run.
const DONE: &str = "that is all";

/// Privilege of an agent, which determines how it isolates programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Root, in a user namespace.
    Root,
    /// A user without privileges, who has a single user ID.
    Ordinary,
    /// Root in the initial user namespace.
    Machine,
    /// The first process of a guest.
    Guest,
}

impl Standing {
    const ALL: [Self; 4] = [Self::Root, Self::Ordinary, Self::Machine, Self::Guest];

    pub fn word(self) -> &'static str {
        match self {
            Self::Root => "as_root",
            Self::Ordinary => "as_an_ordinary_user",
            Self::Machine => "for_ipvs",
            Self::Guest => "in_a_guest",
        }
    }

    /// Returns the check that programs of two labs are isolated. In root's user namespace and in a
    /// guest, programs have the group of root, but not its user.
    fn are_apart(self) -> fn(&Whose, &Whose) -> bool {
        match self {
            Self::Root => |one, other| {
                let is_due = |whose: &Whose| (1..1024).contains(&whose.user) && whose.group == 0;
                is_due(one) && is_due(other) && one.user != other.user && one.room == other.room
            },
            Self::Ordinary => |one, other| {
                let is_due = |whose: &Whose| (whose.user, whose.group) == (0, 0);
                is_due(one) && is_due(other) && one.room != other.room
            },
            Self::Machine => are_apart_on_the_machine,
            Self::Guest => |one, other| {
                let is_due = |whose: &Whose| whose.user > 61_184 && whose.group == 0;
                is_due(one) && is_due(other) && one.user != other.user && one.room == other.room
            },
        }
    }
}

/// Starts an agent of that kind, and prints the attempts that succeeded.
pub fn outside(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let mut next = || arguments.next().expect("an argument");
    let (program, word) = (next(), next());
    let standing = Standing::ALL.into_iter().find(|one| one.word() == word);
    let standing = standing.expect("one of them");
    let own = std::env::current_exe().expect("this program");
    tenants::take_keys();
    let reached = block_on(async {
        let agent = if standing == Standing::Guest {
            let guest = guest("6.12").await.with_programs([own.clone()]);
            guest.with_memory(512).start().await
        } else {
            let host = Host::with_agent(PathBuf::from(program)).with_programs([own.clone()]);
            let is_machine_s = standing == Standing::Machine;
            let host = if is_machine_s { host.for_ipvs() } else { host };
            host.start().await
        };
        let agent = agent?;
        let mut reached = tenants::reached(&agent, &own, standing.are_apart()).await?;
        reached.extend(legacy_tables(&agent, standing).await?);
        Ok::<_, KernelError>(reached)
    });
    for complaint in reached.expect("the agent lives") {
        println!("{complaint}");
    }
    println!("{DONE}");
    ExitCode::SUCCESS
}

/// Returns what is wrong with the legacy tables that programs read. The kernel's list of tables is
/// readable for root's group, which only programs in a user namespace or a guest have.
async fn legacy_tables(agent: &Agent, standing: Standing) -> Result<Vec<String>, KernelError> {
    let node = "node-1";
    let plan = Plan {
        namespaces: vec![Namespace {
            name: node.to_owned(),
            ..Namespace::default()
        }],
        ..Plan::default()
    };
    let mut session = agent.build(plan).await?;
    let rule = "-A INPUT -s 192.0.2.1/32 -j DROP";
    let input = format!("*filter\n{rule}\nCOMMIT\n");
    let restore = "iptables-legacy-restore";
    let written = session.run(node, restore, &[], &input).await?;
    let save = "iptables-legacy-save";
    let all = session.run(node, save, &[], "").await?;
    let one = session.run(node, save, &["-t", "filter"], "").await?;
    session.end().await?;
    let is_due = if standing == Standing::Machine {
        all.stdout.is_empty()
    } else {
        all.stdout.contains(rule)
    };
    if is_due && one.stdout.contains(rule) {
        return Ok(Vec::new());
    }
    Ok(vec![format!("legacy tables: {written:?} {all:?} {one:?}")])
}

/// Returns the kinds of agents that the current user can start.
pub fn standings() -> Vec<Standing> {
    let mut standings = vec![Standing::Ordinary, Standing::Guest];
    if geteuid().is_root() {
        standings.extend([Standing::Root, Standing::Machine]);
    }
    standings
}

/// Returns the attempts that succeeded in labs of such an agent.
pub fn reached(standing: Standing) -> String {
    let own = std::env::current_exe().expect("this program");
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = if standing == Standing::Ordinary && geteuid().is_root() {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(directory.path(), open).expect("permissions");
        let copy = directory.path().join("escape");
        let done = Command::new("cp").arg(&own).arg(&copy).status();
        assert!(done.expect("cp is everywhere").success());
        let mut command = Command::new("setpriv");
        command.args(["--reuid=1000", "--regid=1000", "--clear-groups"]);
        command.arg(copy);
        command
    } else {
        Command::new(&own)
    };
    let output = command
        .arg(OUTSIDE)
        .arg(copied(directory.path()).with_file_name("svclab-agent"))
        .arg(standing.word())
        .output()
        .expect("this program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match text.strip_suffix(&format!("{DONE}\n")) {
        Some(reached) => reached.to_owned(),
        None => text + &String::from_utf8_lossy(&output.stderr),
    }
}
