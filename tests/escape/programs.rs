//! Tests escape attempts of lab programs with agents of each privilege. This program starts itself
//! as a user, starts an agent, and runs itself as a program in the agent's labs.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use nix::unistd::geteuid;
use svclab_model::plan::{Namespace, Plan};
use svclab_runner::kernel::{Agent, Host, KernelError};
use svclab_test_support::block_on;
use svclab_test_support::guests::new_guest;
use svclab_test_support::programs::copy_programs;

use super::program::ProgramIdentity;
use super::tenants::{self, are_isolated_on_host};

/// Argument that makes this program start the agent and run itself in labs.
pub const START_AGENT: &str = "program-outside";

/// Last line of the output, printed once all attempts have run.
const END_OF_OUTPUT: &str = "end of output";

/// Privilege of an agent, which determines how it isolates programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentPrivilege {
    /// Root, in a user namespace.
    Root,
    /// A user without privileges, who has a single user ID.
    Ordinary,
    /// Root in the initial user namespace.
    Machine,
    /// The first process of a guest.
    Guest,
}

impl AgentPrivilege {
    const ALL: [Self; 4] = [Self::Root, Self::Ordinary, Self::Machine, Self::Guest];

    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "as_root",
            Self::Ordinary => "as_an_ordinary_user",
            Self::Machine => "for_ipvs",
            Self::Guest => "in_a_guest",
        }
    }

    /// Returns the check that programs of two labs are isolated. In root's user namespace and in a
    /// guest, programs have the group of root, but not its user.
    fn isolation_check(self) -> fn(&ProgramIdentity, &ProgramIdentity) -> bool {
        match self {
            Self::Root => |first, second| {
                let is_expected =
                    |whose: &ProgramIdentity| (1..1024).contains(&whose.user) && whose.group == 0;
                is_expected(first)
                    && is_expected(second)
                    && first.user != second.user
                    && first.pid_namespace == second.pid_namespace
            },
            Self::Ordinary => |first, second| {
                let is_due = |whose: &ProgramIdentity| (whose.user, whose.group) == (0, 0);
                is_due(first) && is_due(second) && first.pid_namespace != second.pid_namespace
            },
            Self::Machine => are_isolated_on_host,
            Self::Guest => |first, second| {
                let is_due = |whose: &ProgramIdentity| whose.user > 61_184 && whose.group == 0;
                is_due(first)
                    && is_due(second)
                    && first.user != second.user
                    && first.pid_namespace == second.pid_namespace
            },
        }
    }
}

/// Starts an agent of that kind, and prints the attempts that succeeded.
pub fn run_agent(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let mut next = || arguments.next().expect("an argument");
    let (program, word) = (next(), next());
    let privilege = AgentPrivilege::ALL
        .into_iter()
        .find(|kind| kind.name() == word);
    let standing = privilege.expect("a known privilege");
    let program_path = std::env::current_exe().expect("this program");
    tenants::join_keyring_with_key();
    let reached = block_on(async {
        let agent = if standing == AgentPrivilege::Guest {
            let guest = new_guest("6.12")
                .await
                .with_programs([program_path.clone()]);
            guest.with_memory(512).start().await
        } else {
            let host =
                Host::with_agent(PathBuf::from(program)).with_programs([program_path.clone()]);
            let is_machine_s = standing == AgentPrivilege::Machine;
            let host = if is_machine_s {
                host.with_ipvs_privileges()
            } else {
                host
            };
            host.start().await
        };
        let agent = agent?;
        let mut reached =
            tenants::find_escapes(&agent, &program_path, standing.isolation_check()).await?;
        reached.extend(check_legacy_tables(&agent, standing).await?);
        Ok::<_, KernelError>(reached)
    });
    for complaint in reached.expect("the agent runs") {
        println!("{complaint}");
    }
    println!("{END_OF_OUTPUT}");
    ExitCode::SUCCESS
}

/// Returns what is wrong with the legacy tables that programs read. The kernel's list of tables is
/// readable for root's group, which only programs in a user namespace or a guest have.
async fn check_legacy_tables(
    agent: &Agent,
    privilege: AgentPrivilege,
) -> Result<Vec<String>, KernelError> {
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
    let saved_all = session.run(node, save, &[], "").await?;
    let saved_filter = session.run(node, save, &["-t", "filter"], "").await?;
    session.remove().await?;
    let is_due = if privilege == AgentPrivilege::Machine {
        saved_all.stdout.is_empty()
    } else {
        saved_all.stdout.contains(rule)
    };
    if is_due && saved_filter.stdout.contains(rule) {
        return Ok(Vec::new());
    }
    Ok(vec![format!(
        "legacy tables: {written:?} {saved_all:?} {saved_filter:?}"
    )])
}

/// Returns the kinds of agents that the current user can start.
pub fn available_privileges() -> Vec<AgentPrivilege> {
    let mut standings = vec![AgentPrivilege::Ordinary, AgentPrivilege::Guest];
    if geteuid().is_root() {
        standings.extend([AgentPrivilege::Root, AgentPrivilege::Machine]);
    }
    standings
}

/// Returns the attempts that succeeded in labs of such an agent.
pub fn find_escapes(privilege: AgentPrivilege) -> String {
    let program_path = std::env::current_exe().expect("this program");
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = if privilege == AgentPrivilege::Ordinary && geteuid().is_root() {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(directory.path(), open).expect("permissions");
        let copy = directory.path().join("escape");
        let done = Command::new("cp").arg(&program_path).arg(&copy).status();
        assert!(done.expect("cp is installed").success());
        let mut command = Command::new("setpriv");
        command.args(["--reuid=1000", "--regid=1000", "--clear-groups"]);
        command.arg(copy);
        command
    } else {
        Command::new(&program_path)
    };
    let output = command
        .arg(START_AGENT)
        .arg(copy_programs(directory.path()).with_file_name("svclab-agent"))
        .arg(privilege.name())
        .output()
        .expect("this program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match text.strip_suffix(&format!("{END_OF_OUTPUT}\n")) {
        Some(reached) => reached.to_owned(),
        None => text + &String::from_utf8_lossy(&output.stderr),
    }
}
