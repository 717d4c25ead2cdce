//! Applies a plan twice: the tools run the output of `svclab plan`, and the agent builds the plan.
//! Both must create the same network.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Map, Value};
use svclab_model::plan::{Plan, Route, RouteKind, RouteSettings, RoutingAction, RoutingRule};
use svclab_planner::print::{batch_commands, netns_name};
use svclab_runner::kernel::Host;
use svclab_test_support::processes::descendants;
use svclab_test_support::programs::agent;
use svclab_test_support::{block_on, small_plan};

fn plan() -> Plan {
    let mut plan = small_plan();
    // Routes and rules of kinds that only dumped nodes have.
    let router = plan.namespaces.iter_mut().find(|ns| ns.name == "router");
    let router = router.expect("a router");
    let to = |text: &str| text.parse().expect("a network");
    let dev = router.links[0].name.clone();
    let route = |network: &str, kind, table, dev: &str| Route {
        kind,
        table,
        ..Route::new(to(network), dev)
    };
    router.routes.extend([
        route("10.77.0.0/16", RouteKind::Unicast, Some(100), &dev),
        route("10.78.0.0/16", RouteKind::Blackhole, None, ""),
        route("fd00:78::/64", RouteKind::Unreachable, Some(100), ""),
        route("10.79.0.0/16", RouteKind::Prohibit, Some(1000), ""),
        route("10.80.0.0/16", RouteKind::Throw, Some(100), ""),
        route("10.81.0.0/16", RouteKind::Local, Some(100), "lo"),
        Route {
            metric: Some(50),
            settings: RouteSettings {
                tos: Some(0x10),
                mtu: Some(1400),
                mtu_locked: true,
                advertised_mss: Some(1200),
                hop_limit: Some(3),
                ..RouteSettings::default()
            },
            ..route("10.82.0.0/16", RouteKind::Unicast, None, &dev)
        },
    ]);
    let rule = |priority, v6, then| RoutingRule::new(v6, priority, then);
    router.routing_rules = vec![
        RoutingRule {
            mark: Some((0x4000, 0x4000)),
            from: Some(to("10.0.1.0/24")),
            ..rule(100, false, RoutingAction::Table(100))
        },
        RoutingRule {
            inverted: true,
            to: Some(to("10.0.9.0/24")),
            input_interface: Some(dev),
            suppress_prefix_length: Some(0),
            ..rule(101, false, RoutingAction::Table(1000))
        },
        RoutingRule {
            output_interface: Some("eth7".to_owned()),
            ..rule(102, false, RoutingAction::Prohibit)
        },
        rule(103, true, RoutingAction::Table(100)),
        RoutingRule {
            ip_protocol: Some(6),
            source_ports: Some((1024, 2047)),
            destination_ports: Some((80, 80)),
            ..rule(105, false, RoutingAction::Table(100))
        },
        RoutingRule {
            from: Some(to("fd00:9::/64")),
            ..rule(104, true, RoutingAction::Unreachable)
        },
    ];
    router.removed_routing_rules = RoutingRule::kernel_rules()
        .filter(|rule| rule.priority == 32_767)
        .collect();
    plan
}

/// Names and commands of the queries that run in every namespace; each prints JSON.
const QUERIES: [(&str, &str); 8] = [
    ("links", "ip -j -d address"),
    ("ports", "bridge -j -d link"),
    ("routes4", "ip -j -4 route show table all"),
    ("routes6", "ip -j -6 route show table all proto static"),
    ("rules4", "ip -j -4 rule"),
    ("rules6", "ip -j -6 rule"),
    ("neighbours", "ip -j neighbour show nud permanent"),
    ("forwarding", "bridge -j fdb show"),
];

/// Query results by namespace and query name, without values that differ between runs: indexes,
/// counters, timers.
type Network = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// JSON fields that a plan determines.
const PLANNED_FIELDS: [&str; 41] = [
    "action",
    "dstlen",
    "fwmark",
    "fwmask",
    "iif",
    "not",
    "oif",
    "priority",
    "src",
    "srclen",
    "suppress_prefixlen",
    "ifname",
    "address",
    "mtu",
    "master",
    "addr_info",
    "family",
    "local",
    "prefixlen",
    "broadcast",
    "scope",
    "linkinfo",
    "info_kind",
    "info_data",
    "info_slave_data",
    "id",
    "link",
    "port",
    "learning",
    "hairpin",
    "dst",
    "gateway",
    "dev",
    "protocol",
    "prefsrc",
    "type",
    "table",
    "lladdr",
    "mac",
    "flags",
    "metric",
];

/// Whether the kernel sets this value only once a link is ready: carrier flags, link-local
/// addresses, multicast groups that IPv6 joins.
fn is_fleeting(value: &Value) -> bool {
    match value {
        Value::String(flag) => ["LOWER_UP", "NO-CARRIER", "linkdown"].contains(&flag.as_str()),
        Value::Object(fields) => {
            let starts = |field, start| {
                let text = fields.get(field).and_then(Value::as_str);
                text.is_some_and(|text| text.starts_with(start))
            };
            starts("local", "fe80:") || starts("mac", "33:33:")
        }
        _ => false,
    }
}

fn planned_fields(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(name, _)| PLANNED_FIELDS.contains(&name.as_str()))
                .map(|(name, value)| (name.clone(), planned_fields(value)))
                .collect::<Map<_, _>>(),
        ),
        Value::Array(values) => Value::Array(
            values
                .iter()
                .filter(|value| !is_fleeting(value))
                .map(planned_fields)
                .collect(),
        ),
        other => other.clone(),
    }
}

fn parse_results(answers: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut lines = answers.lines();
    let mut read = BTreeMap::new();
    while let Some(name) = lines.next() {
        let text = lines.next().expect("an answer");
        let Value::Array(entries) = serde_json::from_str(text).expect(text) else {
            panic!("{text}");
        };
        let entries = entries.iter().filter(|entry| !is_fleeting(entry));
        let entries = entries.map(planned_fields).map(|mut entry| {
            // `bridge` looks the index of the other end up in the wrong namespace.
            let fields = entry.as_object_mut().filter(|_| name == "ports");
            fields.map(|fields| fields.remove("link"));
            entry
        });
        read.insert(
            name.to_owned(),
            entries.map(|entry| entry.to_string()).collect(),
        );
    }
    read
}

/// Returns a script that prints two lines for each query: its name and its result.
fn query_script() -> String {
    // A command without entries prints nothing; the script prints `[]` instead.
    QUERIES
        .map(|(name, question)| {
            format!("echo {name}; a=$({question} | tr -d '\\n'); echo \"${{a:-[]}}\"")
        })
        .join("\n")
}

fn run(command: &mut Command, name: &str) -> String {
    let output = command
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .expect(name);
    assert!(
        output.status.success(),
        "{name}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

/// Applies the printed plan in new namespaces and returns their network.
fn apply_with_tools(plan: &Plan, directory: &Path) -> Network {
    let mut steps = batch_commands(plan);
    steps.sort_by_key(|step| step.phase);
    let mut script = String::from("mount -t tmpfs none /run\n");
    for namespace in &plan.namespaces {
        let _ = writeln!(script, "ip netns add {}", netns_name(&namespace.name));
    }
    for (number, step) in steps.iter().enumerate() {
        fs::write(directory.join(format!("step-{number}")), &step.text)
            .expect("the step can be written");
        let _ = writeln!(
            script,
            "ip netns exec {} {} <step-{number} >said 2>&1 || {{ cat said; exit 1; }}",
            step.netns,
            step.command.join(" ")
        );
    }
    fs::write(directory.join("ask"), query_script()).expect("the script can be written");
    for namespace in &plan.namespaces {
        let netns = netns_name(&namespace.name);
        let _ = writeln!(script, "ip netns exec {netns} sh -eu ask >answers-{netns}");
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "--mount"]);
    if !nix::unistd::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    run(
        unshare
            .args(["sh", "-euc", &script])
            .env("XTABLES_LOCKFILE", directory.join("lock"))
            .current_dir(directory),
        "applying the printed plan",
    );
    plan.namespaces
        .iter()
        .map(|namespace| {
            let file = format!("answers-{}", netns_name(&namespace.name));
            let answers = fs::read_to_string(directory.join(file)).expect("answers");
            (namespace.name.clone(), parse_results(&answers))
        })
        .collect()
}

/// Returns the network namespaces that a process and its descendants hold by descriptors.
fn held_namespaces(top: i32) -> BTreeMap<PathBuf, (i32, PathBuf)> {
    let mut held = BTreeMap::new();
    for process in std::iter::once(top).chain(descendants(top)) {
        let descriptors = fs::read_dir(format!("/proc/{process}/fd"))
            .into_iter()
            .flatten();
        for descriptor in descriptors.flatten() {
            if let Ok(target) = fs::read_link(descriptor.path())
                && target.to_string_lossy().starts_with("net:[")
            {
                held.insert(target, (process, descriptor.path()));
            }
        }
    }
    held
}

fn apply_with_agent(plan: &Plan) -> Network {
    block_on(async {
        let agent = Host::with_agent(agent()).start().await.expect("an agent");
        let top = agent.process().expect("an agent of this host");
        let top = i32::try_from(top).expect("the PID fits");
        let session = agent.build(plan.clone()).await.expect("a lab");
        let mut network = Network::new();
        for (process, descriptor) in held_namespaces(top).values() {
            let mut nsenter = Command::new("nsenter");
            if !nix::unistd::geteuid().is_root() {
                nsenter.args(["--user", "--preserve-credentials"]);
            }
            nsenter
                .arg(format!("--target={process}"))
                .arg(format!("--net={}", descriptor.display()))
                .args(["sh", "-euc", &query_script()]);
            let answers = parse_results(&run(&mut nsenter, "queries in a namespace of the agent"));
            let of_this = plan.namespaces.iter().find(|namespace| {
                namespace.links.iter().all(|link| {
                    let mac = link.mac.to_string();
                    answers["links"].iter().any(|answer| answer.contains(&mac))
                })
            });
            if let Some(namespace) = of_this {
                network.insert(namespace.name.clone(), answers);
            }
        }
        drop(session);
        network
    })
}

#[test]
fn plan_applied_by_tools_and_agent_gives_same_network() {
    let plan = plan();
    let directory = tempfile::tempdir().expect("a directory");
    let tools = apply_with_tools(&plan, directory.path());
    let agent = apply_with_agent(&plan);
    assert_eq!(tools.len(), plan.namespaces.len());
    for (namespace, answers) in &tools {
        let agent_results = agent
            .get(namespace)
            .unwrap_or_else(|| panic!("the agent has no {namespace}, only {:?}", agent.keys()));
        for (question, answer) in answers {
            let agent_result = &agent_results[question];
            let only = |left: &BTreeSet<String>, right: &BTreeSet<String>| {
                left.difference(right)
                    .cloned()
                    .collect::<Vec<_>>()
                    .join("\n  ")
            };
            assert_eq!(
                answer,
                agent_result,
                "{question} of {namespace}\n only the tools:\n  {}\n only the agent:\n  {}",
                only(answer, agent_result),
                only(agent_result, answer)
            );
        }
        assert!(answers["routes4"].len() > 3, "{answers:?}");
    }
    let rules = &tools["router"];
    assert_eq!(
        (rules["rules4"].len(), rules["rules6"].len()),
        (6, 4),
        "{rules:?}"
    );
    assert!(
        tools["router"]["forwarding"]
            .iter()
            .any(|entry| entry.contains("10.0.2.2"))
    );
}
