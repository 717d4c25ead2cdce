//! Kernel of this host. An agent is a child process that creates its own environment.

pub mod enter;
pub(crate) mod lists;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, Command};
use tokio::sync::oneshot;

use super::agent::{Agent, ConnectOptions, drops};
use super::agent_program;
use super::error::KernelError;
use super::requirements::{MissingRequirements, Modules};
use svclab_agent::capabilities;
use svclab_agent::contain::AgentPrivilege;
use svclab_model::plan::Plan;
use svclab_planner::requirements::Requirements;

/// Maximum size of an agent's standard error that is kept, in bytes.
const MAX_STDERR_KEPT: usize = 4096;

/// Kernel of this host, with the options of its agents.
#[derive(Debug, Clone)]
pub struct Host {
    program: PathBuf,
    modules: Arc<OnceLock<Modules>>,
    privilege: AgentPrivilege,
    /// Programs of agents in addition to those of the system.
    additional_programs: Vec<PathBuf>,
    /// Whether drops are not traced and only counters report them.
    is_untraced: bool,
    /// Agent that was started as a test and is not used yet.
    test_agent: Arc<Mutex<Option<Agent>>>,
}

impl Host {
    /// Creates a host whose agent program is that of [`agent_program::find`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_agent(agent_program::expected_path())
    }

    /// Creates a host with another agent program.
    #[must_use]
    pub fn with_agent(program: PathBuf) -> Self {
        Self {
            program,
            modules: Arc::default(),
            privilege: AgentPrivilege::Contained,
            additional_programs: Vec::new(),
            is_untraced: false,
            test_agent: Arc::default(),
        }
    }

    /// Disables the trace of drops, even if the user has the privilege. The evidence then reports
    /// drops as it does for a user without privileges.
    #[must_use]
    pub fn without_drops(mut self) -> Self {
        self.is_untraced = true;
        self
    }

    /// Returns the path of the agent program.
    #[must_use]
    pub fn agent(&self) -> &Path {
        &self.program
    }

    /// Adds programs that agents can run, at their paths on this host.
    /// [`crate::kernel::Session::start`] starts them. Apart from these, agents see only files of
    /// the system.
    #[must_use]
    pub fn with_programs(mut self, programs: impl IntoIterator<Item = PathBuf>) -> Self {
        self.additional_programs.extend(programs);
        self
    }

    /// Returns this host with agents that keep the privileges of the machine's root that IPVS
    /// needs.
    #[must_use]
    pub fn with_ipvs_privileges(&self) -> Self {
        Self {
            privilege: AgentPrivilege::Host,
            test_agent: Arc::default(),
            ..self.clone()
        }
    }

    /// Returns the privilege of the agents.
    #[must_use]
    pub const fn privilege(&self) -> AgentPrivilege {
        self.privilege
    }

    /// Returns the modules of this host's kernel, as they were at the first call.
    #[must_use]
    pub fn modules(&self) -> &Modules {
        self.modules
            .get_or_init(|| Modules::new(&lists::read_lists()))
    }

    /// Checks that this host meets the requirements of a plan. Building a plan without missing
    /// requirements makes the kernel load no module.
    ///
    /// # Errors
    ///
    /// When a requirement is not met. The error has the requester and the help.
    pub fn check_plan(&self, plan: &Plan) -> Result<(), MissingRequirements> {
        self.check_requirements(&Requirements::from_plan(plan))
    }

    /// Checks that this host meets requirements, which may be those of several plans.
    ///
    /// # Errors
    ///
    /// When a requirement is not met. The error has the requester.
    pub fn check_requirements(&self, needs: &Requirements) -> Result<(), MissingRequirements> {
        MissingRequirements::check(
            needs,
            self.modules(),
            lists::has_program,
            capabilities::check_host_root,
        )
    }

    /// Starts an agent on this host. The next [`Host::start`] returns it.
    pub(super) async fn with_started_agent(self) -> Result<Self, KernelError> {
        let agent = self.start().await?;
        Ok(Self {
            test_agent: Arc::new(Mutex::new(Some(agent))),
            ..self
        })
    }

    /// Starts an agent and waits until it is ready.
    ///
    /// # Errors
    ///
    /// When the agent cannot be started, cannot create its environment, or ends.
    pub async fn start(&self) -> Result<Agent, KernelError> {
        let started = self
            .test_agent
            .lock()
            .map_or(None, |mut agent| agent.take());
        if let Some(agent) = started.filter(|agent| !agent.is_lost()) {
            return Ok(agent);
        }
        let mut child = Command::new(&self.program)
            .args((self.privilege == AgentPrivilege::Host).then_some(svclab_agent::HOST_OPTION))
            .args(
                self.additional_programs
                    .iter()
                    .flat_map(|program| [OsStr::new(svclab_agent::PROGRAM), program.as_os_str()]),
            )
            // The environment of the caller often contains secrets. Labs must not see them.
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Only the front end handles Ctrl-C.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| KernelError::AgentSpawn {
                program: self.program.display().to_string(),
                source: Arc::new(source),
            })?;
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            unreachable!("all three streams are pipes");
        };
        let process = child.id();
        let (kill, killed) = oneshot::channel::<()>();
        let exit_info = async move {
            let (stderr, status) = tokio::join!(read_stderr(errors), async {
                tokio::select! {
                    status = child.wait() => status,
                    // Sent or dropped: the agent is no longer needed.
                    _ = killed => {
                        let _ = child.start_kill();
                        child.wait().await
                    }
                }
            });
            (describe_exit(status.ok()), stderr)
        };
        let agent = Agent::new(
            output,
            input,
            exit_info,
            kill,
            process,
            ConnectOptions::default(),
        )
        .await?;
        let traced_as = process.filter(|_| !self.is_untraced);
        Ok(
            agent.with_drop_trace(traced_as.map(|process| drops::HostAgent {
                process,
                privilege: self.privilege,
            })),
        )
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

async fn read_stderr(mut errors: ChildStderr) -> String {
    let mut kept = Vec::new();
    let mut chunk = [0; 1024];
    while let Ok(length @ 1..) = errors.read(&mut chunk).await {
        kept.extend_from_slice(&chunk[..length]);
        kept.drain(..kept.len().saturating_sub(MAX_STDERR_KEPT));
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}

fn describe_exit(status: Option<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match status {
        Some(status) => match (status.code(), status.signal()) {
            // The process that waits for the agent's own process exits with 128 plus the signal of
            // the agent, as a shell does.
            (Some(code @ 129..=192), _) => format!("killed by signal {}", code - 128),
            (Some(code), _) => format!("exited with status {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "exited".to_owned(),
        },
        None => "exited".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn start_agent_closing_stream_before_exit_is_not_killed() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("agent");
        // The loop takes several milliseconds.
        let text = "exec >&-; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 3";
        // A file that this process has open for writing cannot be executed. The same is true if a
        // child of another test inherited the descriptor. Therefore a shell writes the file.
        let write = r#"printf '#!/bin/sh\n%s\n' "$1" >"$0" && chmod 755 "$0""#;
        let mut shell = std::process::Command::new("sh");
        let shell = shell.arg("-c").arg(write).arg(&program).arg(text);
        assert!(shell.status().unwrap().success());
        let error = Host::with_agent(program).start().await.unwrap_err();
        let KernelError::Lost(lost) = error else {
            panic!("{error:?}");
        };
        assert_eq!(lost.cause, "exited with status 3");
    }
}
