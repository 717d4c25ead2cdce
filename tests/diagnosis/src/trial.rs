//! Runs a trial: breaks the healthy lab with one fault or two, checks that probes fail, and asks the
//! commands for the cause.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command as Program, Stdio};
use std::{fs, io};

use serde::Serialize;
use serde_json::{Value, json};

use crate::args::Command;
use crate::draw::{Draw, Random};
use crate::fault::{Change, Culprit, Fault};
use crate::kinds::Kind;
use crate::lab::{BrokenLab, HealthyLab};
use crate::mode::Mode;
use crate::score::{self, Answer, Grade, grade, is_false_cure};
use crate::state::{NodeState, State};
use crate::subject::Subject;
use crate::tool::Tool;

/// Draws of a fault until probes fail.
const MAX_DRAWS: u64 = 4;

/// Maximum number of tracked connections in a dump: more than a fault adds.
const MAX_CONNECTIONS: &str = "100000";

/// Everything that trials share.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) tool: Tool,
    pub(crate) lab: HealthyLab,
    /// Directory of labs, dumps and outputs.
    pub(crate) files: PathBuf,
    /// `scripts/collect-node`.
    pub(crate) collector: PathBuf,
    pub(crate) kube_proxy: Option<PathBuf>,
    pub(crate) commands: Vec<Command>,
}

/// Healthy lab in one mode, and the dumps of its nodes.
#[derive(Debug)]
pub(crate) struct Healthy {
    pub(crate) state: State,
    dumps: BTreeMap<String, PathBuf>,
}

/// Trial to run.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) mode: Mode,
    pub(crate) seed: u64,
}

/// Result of a trial.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Trial {
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) area: &'static str,
    pub(crate) mode: Mode,
    pub(crate) seed: u64,
    /// Description of each fault.
    pub(crate) faults: Vec<String>,
    #[serde(flatten)]
    pub(crate) status: Status,
    /// Answer of each command.
    pub(crate) scores: BTreeMap<Command, Score>,
}

/// Whether the fault could be measured.
#[derive(Debug, Serialize)]
#[serde(tag = "status", rename_all = "camelCase")]
pub(crate) enum Status {
    /// Probes fail.
    Shows { failing: Vec<String> },
    /// No draw of the fault breaks a probe.
    DoesNotShow,
    /// svclab cannot express the fault, or this machine cannot.
    CannotBeApplied { reason: String },
}

/// Score of an answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Score {
    /// Grade of the answer; for two faults, the worse one.
    pub(crate) grade: Grade,
    /// Grade of the answer for each fault.
    pub(crate) grades: Vec<Grade>,
    /// Whether the answer states that nothing is wrong.
    pub(crate) false_all_clear: bool,
    /// Whether the answer has only cures for a probe that concern none of the faults.
    pub(crate) false_cure: bool,
    pub(crate) trials: usize,
    pub(crate) seconds: f64,
    /// Beginning of the answer.
    pub(crate) answer: String,
}

impl Bench {
    /// Runs the healthy lab, and collects the state of its nodes.
    pub(crate) fn healthy(&self, mode: Mode) -> Result<Healthy, String> {
        let name = format!("healthy-{}", mode.name());
        let lab = self.write(&name, mode, &[], &[])?;
        let failing = self.failing(&name, &lab.healthy)?;
        if !failing.is_empty() {
            return Err(format!(
                "probes of the healthy lab fail: {}",
                failing.join(", ")
            ));
        }
        let objects = self.lab.objects()?;
        let names = objects.iter().filter(|object| object["kind"] == "Node");
        let names: Vec<String> = names
            .filter_map(|node| node["metadata"]["name"].as_str())
            .map(str::to_owned)
            .collect();
        let dumps = self.collect(&name, &lab.healthy, &lab.running, &names)?;
        let nodes = dumps.iter().map(|(name, path)| NodeState::read(name, path));
        let nodes = nodes
            .collect::<io::Result<_>>()
            .map_err(|error| error.to_string())?;
        Ok(Healthy {
            state: State {
                mode,
                objects,
                nodes,
            },
            dumps,
        })
    }

    fn write(
        &self,
        name: &str,
        mode: Mode,
        base: &[Value],
        faults: &[&Fault],
    ) -> Result<BrokenLab, String> {
        self.lab
            .write(&self.files, name, mode, base, faults)
            .map_err(|error| error.to_string())
    }

    /// Runs a case, and returns its failing probes.
    fn failing(&self, name: &str, case: &str) -> Result<Vec<String>, String> {
        let output = self.tool.run(
            &self.files,
            &format!("{name}.run"),
            &["run", "--format", "json", case],
        );
        score::failing_probes(&output.map_err(|error| error.to_string())?)
    }

    /// Builds a case, and runs `scripts/collect-node` on some nodes. Returns the directories.
    fn collect(
        &self,
        name: &str,
        case: &str,
        running: &str,
        nodes: &[String],
    ) -> Result<BTreeMap<String, PathBuf>, String> {
        let run = |step: &str, arguments: &[&str], input: Option<&Path>| {
            let name = format!("{name}.{step}");
            let output = self
                .tool
                .run_with_input(&self.files, &name, arguments, input);
            output.map_err(|error| error.to_string())
        };
        let up = self.tool.up(&self.files, &format!("{name}.up"), case);
        let mut lab = up.map_err(|error| error.to_string())??;
        let mut dumps = BTreeMap::new();
        let mut result = Ok(());
        for node in nodes {
            let step = format!("dump-{node}");
            let arguments = [
                "exec",
                "--lab",
                running,
                node,
                "--",
                "sh",
                "-s",
                "--",
                "-o",
                "-",
                "--conntrack",
                MAX_CONNECTIONS,
            ];
            let directory = self.files.join(format!("{name}.{node}"));
            result = run(&step, &arguments, Some(&self.collector)).and_then(|output| match output
                .code
            {
                Some(0) => unpack(&self.files.join(format!("{name}.{step}.out")), &directory),
                _ => Err(output.failure()),
            });
            if result.is_err() {
                break;
            }
            dumps.insert(node.clone(), directory);
        }
        run("down", &["down", running], None)?;
        lab.wait().map_err(|error| error.to_string())?;
        result.map(|()| dumps)
    }

    /// Runs a trial.
    pub(crate) fn run(&self, healthy: &Healthy, task: &Task) -> Trial {
        let kinds: Vec<&'static str> = task.kinds.iter().map(|kind| kind.name).collect();
        let mut trial = Trial {
            area: task.kinds.first().map_or("", |kind| kind.area),
            mode: task.mode,
            seed: task.seed,
            faults: Vec::new(),
            status: Status::DoesNotShow,
            scores: BTreeMap::new(),
            kinds,
        };
        let name = format!(
            "{}-{}-{}",
            trial.kinds.join("-and-"),
            task.mode.name(),
            task.seed
        );
        trial.status = match self.examine(healthy, task, &name, &mut trial) {
            Ok(status) => status,
            Err(reason) => Status::CannotBeApplied {
                reason: reason.replace('\n', " "),
            },
        };
        trial
    }

    fn examine(
        &self,
        healthy: &Healthy,
        task: &Task,
        name: &str,
        trial: &mut Trial,
    ) -> Result<Status, String> {
        let (mut faults, mut broken) = (Vec::new(), Vec::new());
        for kind in &task.kinds {
            // Each fault of a pair breaks probes alone, too.
            let (fault, alone) = self.draw(healthy, task, *kind, name)?;
            if alone.is_empty() {
                trial.faults = vec![fault.summary];
                return Ok(Status::DoesNotShow);
            }
            faults.push(fault);
            broken.push(alone);
        }
        trial.faults = faults.iter().map(|fault| fault.summary.clone()).collect();
        let base = self.base(task)?;
        let lab = self.write(name, task.mode, &base, &faults.iter().collect::<Vec<_>>())?;
        let failing = self.failing(name, &lab.broken)?;
        // The second fault may have moved the lab to another kernel, where the first breaks nothing.
        let shows = |alone: &Vec<String>| alone.iter().any(|probe| failing.contains(probe));
        if !broken.iter().all(shows) {
            return Ok(Status::DoesNotShow);
        }
        let nodes: Vec<String> = match faults
            .iter()
            .map(|fault| fault.change.node())
            .collect::<Option<Vec<_>>>()
        {
            Some(mut nodes) => {
                nodes.sort_unstable();
                nodes.dedup();
                nodes.into_iter().map(str::to_owned).collect()
            }
            None => healthy.dumps.keys().cloned().collect(),
        };
        let mut dumps = BTreeMap::new();
        let mut good = healthy.dumps.clone();
        if self.commands.iter().any(|command| command.reads_dumps()) {
            dumps = self.collect(name, &lab.broken, &lab.running, &nodes)?;
            if !base.is_empty() {
                good = self.collect(&format!("{name}.good"), &lab.healthy, &lab.running, &nodes)?;
            }
        }
        // Both dumps replace a node of a lab with generated rules, because `bisect` refuses others.
        let generated = self.write(&format!("{name}-generated"), task.mode, &[], &[])?;
        let subject = Subject {
            generated: &generated,
            in_objects: faults.iter().any(|fault| fault.change.node().is_none()),
            real_proxy: !base.is_empty(),
            name,
            lab: &lab,
            failing: &failing,
            good: &good,
            bad: &dumps,
        };
        for command in &self.commands {
            let can_be_found = |fault: &Fault| fault.shown.can_be_found_by(*command);
            if !faults.iter().all(can_be_found) {
                continue;
            }
            let scored = self
                .ask(*command, &subject, &faults)
                .map_err(|error| error.to_string())?;
            trial.scores.insert(*command, scored);
        }
        Ok(Status::Shows { failing })
    }

    /// Returns the patches of the healthy lab.
    fn base(&self, task: &Task) -> Result<Vec<Value>, String> {
        if !task.kinds.iter().any(|kind| kind.real_proxy) {
            return Ok(Vec::new());
        }
        let path = self
            .kube_proxy
            .as_ref()
            .ok_or("no kube-proxy is given with --kube-proxy")?;
        let printed = Program::new(path).arg("--version").output();
        let printed = printed.map_err(|error| format!("cannot run kube-proxy: {error}"))?;
        let printed = String::from_utf8_lossy(&printed.stdout);
        // `Kubernetes v1.20.2`.
        let version = printed.split_whitespace().last().unwrap_or_default();
        let proxy = json!({"binary": path, "version": version});
        Ok(vec![
            json!({"patch": "Lab", "merge": {"spec": {"kubeProxy": proxy}}}),
        ])
    }

    /// Draws a fault until a probe fails. Returns the last fault, and the failing probes.
    fn draw(
        &self,
        healthy: &Healthy,
        task: &Task,
        kind: Kind,
        name: &str,
    ) -> Result<(Fault, Vec<String>), String> {
        let base = self.base(task)?;
        if !base.is_empty() {
            let lab = self.write(&format!("{name}-healthy"), task.mode, &base, &[])?;
            let failing = self.failing(&format!("{name}-healthy"), &lab.healthy)?;
            if !failing.is_empty() {
                return Err(format!(
                    "probes fail without the fault: {}",
                    failing.join(", ")
                ));
            }
        }
        let mut last = Err("no draw".to_owned());
        for redraw in 0..MAX_DRAWS {
            let mut draw = Draw {
                state: &healthy.state,
                random: Random::new(task.seed, kind.name, redraw),
            };
            let name = format!("{name}.draw{redraw}.{}", kind.name).replace('.', "-");
            let shown = (kind.draw)(&mut draw).and_then(|mut fault| {
                if kind.is_written_by_proxy() {
                    fault = fault.written_by_proxy();
                }
                let lab = self.write(&name, task.mode, &base, &[&fault])?;
                let failing = self.failing(&name, &lab.broken)?;
                Ok((fault, failing))
            });
            match shown {
                Ok((fault, failing)) if !failing.is_empty() => return Ok((fault, failing)),
                Ok(hidden) => last = Ok(hidden),
                Err(reason) if last.is_err() => last = Err(reason),
                Err(_) => {}
            }
        }
        last
    }

    fn ask(&self, command: Command, subject: &Subject<'_>, faults: &[Fault]) -> io::Result<Score> {
        let mut answer = Answer::default();
        let mut seconds = 0.0;
        for (index, arguments) in subject.calls(command).iter().enumerate() {
            let name = format!(
                "{}.{}{index}",
                subject.name,
                command.name().replace(" --", "-")
            );
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let mut output = self.tool.run(&self.files, &name, &arguments)?;
            seconds += output.duration.as_secs_f64();
            if output.stderr.contains("too busy") {
                // Another program used the processors.
                output = self.tool.run(&self.files, &name, &arguments)?;
                seconds += output.duration.as_secs_f64();
            }
            let document = serde_json::from_str::<Value>(&output.stdout);
            let mut read = match (command, document) {
                (Command::Bisect, _) => score::bisect(&output),
                (_, Err(_)) => score::failed(&output),
                // Only 0 and 1 are answers.
                _ if output.code.is_none_or(|code| code > 1) => score::failed(&output),
                (Command::Diff, Ok(document)) => score::diff(&document),
                (Command::Why | Command::WhyDump, Ok(document)) => score::why(&document),
                (Command::Explain | Command::Replay, Ok(document)) => {
                    score::journeys(&document, subject.failing)
                }
            };
            // With another exit code, a command does not claim to know.
            read.all_clear &= command == Command::Bisect || output.code == Some(0);
            answer = match index {
                0 => read,
                _ => answer.and(read),
            };
        }
        let is_quoted =
            |fault: &Fault| command == Command::Bisect && quotes(&answer, &fault.change);
        let grade_of = |fault: &Fault| match grade(&answer, &fault.culprits) {
            Grade::Near | Grade::Other if is_quoted(fault) => Grade::Exact,
            grade => grade,
        };
        let grades: Vec<Grade> = faults.iter().map(grade_of).collect();
        let culprits = faults.iter().flat_map(|fault| &fault.culprits);
        let culprits: Vec<&Culprit> = culprits.collect();
        let grade = grades.iter().copied().min().unwrap_or(Grade::Nothing);
        Ok(Score {
            grade,
            false_all_clear: answer.all_clear && grade == Grade::Nothing,
            false_cure: is_false_cure(&answer, &culprits),
            trials: answer.trials,
            seconds,
            answer: answer.beginning(),
            grades,
        })
    }
}

/// Whether an answer quotes a command of a change. In a comparison of two cases, the command itself is
/// the difference.
fn quotes(answer: &Answer, change: &Change) -> bool {
    let Change::Commands { node, commands } = change else {
        return false;
    };
    let plain = |text: &str| text.replace(['\'', '"', '\\'], "");
    let statements = answer.statements.iter();
    let mut manual = statements.filter(|text| text.contains(&format!("manual commands {node}:")));
    manual.any(|text| {
        let text = plain(text);
        commands
            .iter()
            .any(|command| text.contains(&plain(command)))
    })
}

/// Unpacks a tarball of `scripts/collect-node` to a directory.
fn unpack(tarball: &Path, directory: &Path) -> Result<(), String> {
    let unpacked = fs::create_dir_all(directory).and_then(|()| {
        Program::new("tar")
            .args(["--extract", "--gzip", "--strip-components=1", "--file"])
            .arg(tarball)
            .arg("--directory")
            .arg(directory)
            .stdin(Stdio::null())
            .status()
    });
    match unpacked {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("tar ended with {status}")),
        Err(error) => Err(format!("cannot unpack {}: {error}", tarball.display())),
    }
}
