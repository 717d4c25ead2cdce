//! Measures the peak memory of a front end that receives the largest events an agent can send.
//!
//! The program runs both sides: as front end, it starts itself as its agent and prints its own peak
//! memory.

use std::fs;
use std::io::{self, Read as _, Write as _, stdin, stdout};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use libtest_mimic::{Failed, Trial};
use svclab_model::evidence::trace::{MAX_TRACE_EVENTS, TraceEvent, TracePoint};
use svclab_model::evidence::{Direction, Environment, Packet, SavedRules};
use svclab_model::plan::{Backend, Namespace, Plan};
use svclab_model::protocol::frame::MAX_EVENT;
use svclab_model::protocol::{Event, LabId, Request, VERSION};
use svclab_runner::kernel::{Host, KernelError};
use svclab_runner::run::{Prepared, run_on_agent};
use svclab_test_support::generated::fake_agent;
use svclab_test_support::{block_on, cases, ordinary_or_full};

/// Argument that makes this program the front end.
const FRONT_END_ARGUMENT: &str = "front-end";

/// Maximum memory of a front end with one agent in MiB, as docs/src/concepts/containment.md
/// states.
const MAX_MEMORY_MIB: u64 = 768;

/// Reply of the agent to a request for evidence.
struct AgentReply {
    name: &'static str,
    /// Whether the front end needs seconds to read the reply in a debug build.
    is_long: bool,
    send: fn(),
    /// Part of the front end's message; empty if no message is expected.
    message: &'static str,
}

/// Evidence in which all required fields but one are empty.
const EVIDENCE: [&str; 2] = [
    r#"{"say":"probed","lab":0,"evidence":{"stages":[{"attempts":[],"packets":[],"packetsMissed":0,"counters":{},"rules":[],"#,
    "}]}}",
];

/// Name of the reply that the front end judges, and the case that it judges.
const JUDGED_REPLY: &str = "evidence of a case that passes";
const CASE: &str = "canal-stale-rule/stale=removed,rpFilter=1,underlay=passes";

const REPLIES: &[AgentReply] = &[
    AgentReply {
        name: JUDGED_REPLY,
        is_long: true,
        send: || {
            let mut evidence = fake_agent::ideal_evidence(&prepare_case());
            let stage = &mut evidence.stages[0];
            let bytes = vec![0; 1600];
            let packet = |time| Packet {
                time,
                namespace: "node-1".to_owned(),
                interface: "eth0".to_owned(),
                direction: Direction::In,
                length: 1600,
                bytes: bytes.clone(),
            };
            stage.packets = (0..30_000).map(packet).collect();
            let met = |_| TraceEvent {
                namespace: "node-1".to_owned(),
                backend: Backend::Nft,
                trace_id: 1,
                packet: None,
                ip_version: 4,
                input: None,
                output: None,
                mark: 0,
                table: "filter".to_owned(),
                inet: false,
                chain: "INPUT".to_owned(),
                point: TracePoint::Rule(1),
                verdict: None,
            };
            stage.trace = (0..MAX_TRACE_EVENTS).map(met).collect();
            let text = |length: usize| {
                let line = "-A INPUT -s 192.0.2.1/32 -j DROP\n";
                format!("*filter\n{}COMMIT\n", line.repeat(length / line.len()))
            };
            let mut event = Event::Probed {
                lab: 0,
                evidence: Box::new(evidence),
            };
            let length = MAX_EVENT - serde_json::to_vec(&event).expect("JSON").len();
            if let Event::Probed { evidence, .. } = &mut event {
                evidence.stages[0].rules = vec![SavedRules {
                    namespace: "node-1".to_owned(),
                    backend: Backend::Nft,
                    ip_version: 4,
                    text: text(length * 9 / 10),
                }];
            }
            send_event(&event);
        },
        message: "Pass",
    },
    AgentReply {
        name: "packets",
        is_long: true,
        send: || {
            let front = r#"{"say":"probed","lab":0,"evidence":{"stages":[{"attempts":[],"packetsMissed":0,"counters":{},"rules":[],"packets":["#;
            let packet = r#"{"time":0,"namespace":"","interface":"","direction":"in","length":0,"bytes":""}"#;
            send_filled_frame(front, |_| packet.to_owned(), "]}]}}");
        },
        message: "packets, but an agent keeps at most 50000",
    },
    AgentReply {
        name: "bytes",
        is_long: false,
        send: || {
            let (front, rest) = (EVIDENCE[0].to_owned() + r#""nft":{"node-1":""#, r#""}}]}}"#);
            let text = "A".repeat(MAX_EVENT - front.len() - rest.len());
            send_frame(&[&front, &text, rest]);
        },
        message: "",
    },
    AgentReply {
        name: "trace events",
        is_long: true,
        send: || {
            let front = EVIDENCE[0].to_owned() + r#""trace":["#;
            let met = r#"{"namespace":"","backend":"nft","ipVersion":4,"table":"","chain":"","point":"return"}"#;
            send_filled_frame(&front, |_| met.to_owned(), "]}]}}");
        },
        message: "trace events, but an agent keeps at most 200000",
    },
    AgentReply {
        name: "addresses",
        is_long: true,
        send: || {
            let front = EVIDENCE[0].to_owned() + r#""unresolved":{"node-1":["#;
            send_filled_frame(&front, |_| r#""::""#.to_owned(), "]}}]}}");
        },
        message: "",
    },
    AgentReply {
        name: "namespaces",
        is_long: false,
        send: || {
            let front = EVIDENCE[0].to_owned() + r#""kernelState":{"#;
            send_filled_frame(&front, |at| format!(r#""{at:x}":{{}}"#), "}}]}}");
        },
        message: "too many names",
    },
    AgentReply {
        name: "sysctls",
        is_long: false,
        send: || {
            let front = EVIDENCE[0].to_owned() + r#""sysctls":{"node-1":{"#;
            send_filled_frame(&front, |at| format!(r#""{at:x}":"""#), "}}}]}}");
        },
        message: "too many names",
    },
    AgentReply {
        name: "stages",
        is_long: false,
        send: || {
            let front = r#"{"say":"probed","lab":0,"evidence":{"stages":["#;
            let stage =
                r#"{"attempts":[],"packets":[],"packetsMissed":0,"counters":{},"rules":[]}"#;
            send_filled_frame(front, |_| stage.to_owned(), "]}}");
        },
        message: "too many stages",
    },
    AgentReply {
        name: "invalid values",
        is_long: true,
        send: || {
            send_filled_frame(
                r#"{"say":"probed","lab":0,"more":["#,
                |_| "0".to_owned(),
                "]}",
            );
        },
        message: "missing field `evidence`",
    },
    AgentReply {
        name: "a message of another kind",
        is_long: true,
        send: || {
            send_filled_frame(
                r#"{"say":"removed","lab":0,"more":["#,
                |_| "0".to_owned(),
                "]}",
            );
        },
        message: "exceeds the limit of 8388608 bytes for its kind",
    },
    AgentReply {
        name: "eight answers of 50 MiB",
        is_long: false,
        send: || {
            let text = "A".repeat(50 << 20);
            let rest = r#"","stderr":""}}"#;
            for _ in 0..8 {
                let front =
                    r#"{"say":"programFinished","lab":0,"output":{"success":true,"stdout":""#;
                send_frame(&[front, &text, rest]);
            }
        },
        message: "unexpected answer: ProgramFinished",
    },
    AgentReply {
        name: "endless progress steps",
        is_long: false,
        send: || {
            let step = "x".repeat(60 << 10);
            for _ in 0..20_000 {
                send_frame(&[r#"{"say":"step","lab":0,"step":""#, &step, r#""}"#]);
            }
        },
        message: "exited with status 0",
    },
];

/// Sends a frame of the maximum size, filled with pieces.
fn send_filled_frame(front: &str, piece: impl Fn(usize) -> String, rest: &str) {
    let mut text = String::with_capacity(MAX_EVENT);
    text.push_str(front);
    for index in 0.. {
        let piece = piece(index);
        if text.len() + piece.len() + 1 + rest.len() > MAX_EVENT {
            break;
        }
        if index > 0 {
            text.push(',');
        }
        text.push_str(&piece);
    }
    send_frame(&[&text, rest]);
}

/// Sends a frame. Exits if the front end no longer reads.
fn send_frame(parts: &[&str]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let length = u32::try_from(length).expect("a frame's length");
    let mut out = stdout().lock();
    let sent = out
        .write_all(&length.to_be_bytes())
        .and_then(|()| {
            parts
                .iter()
                .try_for_each(|part| out.write_all(part.as_bytes()))
        })
        .and_then(|()| out.flush());
    if sent.is_err() {
        std::process::exit(0);
    }
}

fn send_event(event: &Event) {
    send_frame(&[&serde_json::to_string(event).expect("JSON")]);
}

/// Runs the agent: confirms every build, and sends its reply to the first probe request.
fn run_agent(manner: &AgentReply) -> ExitCode {
    send_event(&Event::Ready {
        protocol: VERSION,
        environment: Environment::default(),
    });
    while let Ok(request) = recv_request() {
        match request {
            Request::Build { lab, .. } => send_built(lab),
            Request::Probe { .. } => {
                (manner.send)();
                return ExitCode::SUCCESS;
            }
            _ => {}
        }
    }
    ExitCode::SUCCESS
}

fn send_built(lab: LabId) {
    send_event(&Event::Built {
        lab,
        descriptors: std::collections::BTreeMap::new(),
        refused: Vec::new(),
    });
}

fn recv_request() -> io::Result<Request> {
    let mut length = [0; 4];
    stdin().read_exact(&mut length)?;
    let mut text = vec![0; u32::from_be_bytes(length) as usize];
    stdin().read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

fn prepare_case() -> Prepared {
    fake_agent::expect_only_probes(&cases::prepare_case(CASE))
}

/// Runs the front end: requests evidence, then prints its peak memory in MiB and its message about
/// the agent.
fn run_front_end(manner: &str) -> ExitCode {
    let program = std::env::current_exe().expect("this program");
    let host = Host::with_agent(program).with_programs([PathBuf::from(manner)]);
    let message = block_on(async {
        let agent = host.start().await?;
        if manner == JUDGED_REPLY {
            let (result, _) = run_on_agent(&agent, prepare_case()).await;
            return Ok(format!("{:?} {:?}", result.result, result.error));
        }
        let namespace = Namespace {
            name: "node-1".to_owned(),
            ..Namespace::default()
        };
        let plan = Plan {
            namespaces: vec![namespace],
            ..Plan::default()
        };
        agent
            .build(plan)
            .await?
            .probe()
            .await
            .map(|_| String::new())
    });
    let text = message.unwrap_or_else(|error: KernelError| error.to_string());
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let most = most.and_then(|rest| rest.split_whitespace().next());
    let most: u64 = most.expect("a line").parse().expect("a number");
    println!("{} {text}", most >> 10);
    ExitCode::SUCCESS
}

fn check_memory(manner: &AgentReply) -> Result<(), Failed> {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program)
        .args([FRONT_END_ARGUMENT, manner.name])
        .output();
    let output = output.expect("this program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (most, said) = text.trim_end().split_once(' ').unwrap_or((text.trim(), ""));
    let beginning: String = said.chars().take(100).collect();
    println!("{}: {most} MiB, {beginning}", manner.name);
    let most: u64 = most.parse().map_err(|_| format!("{output:?}"))?;
    if most > MAX_MEMORY_MIB
        || !said.contains(manner.message)
        || said.is_empty() != manner.message.is_empty()
    {
        return Err(format!("{most} MiB, {beginning}").into());
    }
    Ok(())
}

/// Runs the role that the arguments name; `None` if they name no role.
pub fn run_role(words: &[String]) -> Option<ExitCode> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [_, svclab_agent::PROGRAM, name] => {
            let mut replies = REPLIES.iter();
            let reply = replies.find(|reply| reply.name == name);
            Some(run_agent(reply.expect("a known reply")))
        }
        [_, FRONT_END_ARGUMENT, name] => Some(run_front_end(name)),
        _ => None,
    }
}

pub fn trials() -> Vec<Trial> {
    let takes_all = ordinary_or_full(false, true);
    let replies = REPLIES.iter().filter(|reply| takes_all || !reply.is_long);
    let trials = replies.map(|reply| {
        let name = format!(
            "front_end_memory_{}_is_bounded",
            reply.name.replace(' ', "_")
        );
        Trial::test(name, move || check_memory(reply))
    });
    trials.collect()
}
