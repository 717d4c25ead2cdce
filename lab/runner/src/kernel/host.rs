//! Kernel of this host. An agent is a child process that creates its own environment.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, Command};
use tokio::sync::oneshot;

use super::agent::{Agent, Manner};
use super::agent_program;
use super::drops;
use super::error::KernelError;
use super::lists;
use super::missing::Missing;
use super::modules::Modules;
use svclab_agent::contain::Standing;
use svclab_agent::rights;
use svclab_model::plan::Plan;
use svclab_planner::needs::Needs;

/// Maximum size of an agent's standard error that is kept, in bytes.
const KEPT: usize = 4096;

/// Kernel of this host, with the options of its agents.
#[derive(Debug, Clone)]
pub struct Host {
    program: PathBuf,
    modules: Arc<OnceLock<Modules>>,
    standing: Standing,
    /// Programs of agents in addition to those of the system.
    further: Vec<PathBuf>,
    /// Whether drops are not traced and only counters report them.
    untraced: bool,
    /// Agent that was started as a test and is not used yet.
    started: Arc<Mutex<Option<Agent>>>,
}

impl Host {
    /// Creates a host whose agent program is that of [`agent_program::find`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_agent(agent_program::expected())
    }

    /// Creates a host with another agent program.
    #[must_use]
    pub fn with_agent(program: PathBuf) -> Self {
        Self {
            program,
            modules: Arc::default(),
            standing: Standing::Contained,
            further: Vec::new(),
            untraced: false,
            started: Arc::default(),
        }
    }

    /// Disables the trace of drops, even if the user has the privilege. The evidence then reports
    /// drops as it does for a user without privileges.
    #[must_use]
    pub fn without_drops(mut self) -> Self {
        self.untraced = true;
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
        self.further.extend(programs);
        self
    }

    /// Returns this host with agents that keep the privileges of the machine's root that IPVS
    /// needs.
    #[must_use]
    pub fn for_ipvs(&self) -> Self {
        Self {
            standing: Standing::Machine,
            started: Arc::default(),
            ..self.clone()
        }
    }

    /// Returns the privilege of the agents.
    #[must_use]
    pub const fn standing(&self) -> Standing {
        self.standing
    }

    /// Returns the modules of this host's kernel, as they were at the first call.
    #[must_use]
    pub fn modules(&self) -> &Modules {
        self.modules.get_or_init(|| Modules::new(&lists::read()))
    }

    /// Whether the agent finds a program on this host.
    #[must_use]
    pub fn has_program(&self, name: &str) -> bool {
        lists::has_program(name)
    }

    /// Checks that this host meets the requirements of a plan. Building a plan without missing
    /// requirements makes the kernel load no module.
    ///
    /// # Errors
    ///
    /// When a requirement is not met. The error has the requester and the help.
    pub fn missing(&self, plan: &Plan) -> Result<(), Missing> {
        self.missing_of(&Needs::of(plan))
    }

    /// Checks that this host meets requirements, which may be those of several plans.
    ///
    /// # Errors
    ///
    /// When a requirement is not met. The error has the requester.
    pub fn missing_of(&self, needs: &Needs) -> Result<(), Missing> {
        Missing::check(
            needs,
            self.modules(),
            |name| self.has_program(name),
            rights::are_those_of_root,
        )
    }

    /// Starts an agent on this host. The next [`Host::start`] returns it.
    ///
    /// # Errors
    ///
    /// When no agent starts.
    pub(super) async fn started(self) -> Result<Self, KernelError> {
        let agent = self.start().await?;
        Ok(Self {
            started: Arc::new(Mutex::new(Some(agent))),
            ..self
        })
    }

    /// Starts an agent and waits until it is ready.
    ///
    /// # Errors
    ///
    /// When the agent cannot be started, cannot create its environment, or ends.
    pub async fn start(&self) -> Result<Agent, KernelError> {
        let started = self.started.lock().map_or(None, |mut agent| agent.take());
        if let Some(agent) = started.filter(|agent| !agent.is_lost()) {
            return Ok(agent);
        }
        let mut child = Command::new(&self.program)
            .args((self.standing == Standing::Machine).then_some(svclab_agent::MACHINE))
            .args(
                self.further
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
            .map_err(|source| KernelError::Start {
                program: self.program.display().to_string(),
                source: Arc::new(source),
            })?;
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            unreachable!("all three streams were asked for");
        };
        let process = child.id();
        let (kill, killed) = oneshot::channel::<()>();
        let obituary = async move {
            let (said, status) = tokio::join!(last_words(errors), async {
                tokio::select! {
                    status = child.wait() => status,
                    // Sent or dropped: the agent is no longer needed.
                    _ = killed => {
                        let _ = child.start_kill();
                        child.wait().await
                    }
                }
            });
            (how(status.ok()), said)
        };
        let agent = Agent::new(output, input, obituary, kill, process, Manner::default()).await?;
        let traced_as = process.filter(|_| !self.untraced);
        Ok(agent.traced_as(traced_as.map(|process| drops::Agent {
            process,
            standing: self.standing,
        })))
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

async fn last_words(mut errors: ChildStderr) -> String {
    let mut kept = Vec::new();
    let mut chunk = [0; 1024];
    while let Ok(length @ 1..) = errors.read(&mut chunk).await {
        kept.extend_from_slice(&chunk[..length]);
        kept.drain(..kept.len().saturating_sub(KEPT));
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}

fn how(status: Option<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match status {
        Some(status) => match (status.code(), status.signal()) {
            // The process that waits for the agent's own process exits with 128 plus the signal of
            // the agent, as a shell does.
            (Some(code @ 129..=192), _) => format!("it was ended by signal {}", code - 128),
            (Some(code), _) => format!("it ended with status {code}"),
            (None, Some(signal)) => format!("it was ended by signal {signal}"),
            (None, None) => "it ended".to_owned(),
        },
        None => "it ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn agent_that_closes_its_stream_before_it_exits_is_not_killed() {
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
        assert_eq!(lost.how, "it ended with status 3");
    }
}
