//! Generates arbitrary valid labs: nodes, pods, services, probes, steps, axes, and expectations of
//! every kind.

use serde_json::{Map, Value, json};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::{Source, Sources};
use svclab_model::plan::MaxWait;
use svclab_runner::run::{Prepared, SelectedLab, prepare};
use svclab_scenario::Scenario;

use super::changed_lab::{change_lab, render_documents};
use super::choices::Choices;

/// Versions of kube-proxy, each with a mode that it supports.
const PROXIES: [(&str, &str); 6] = [
    ("v1.20.2", "iptables"),
    ("v1.24", "ipvs"),
    ("v1.30", "nftables"),
    ("v1.36", "nftables"),
    ("v1.36", "iptables"),
    ("v1.30", "ipvs"),
];

/// Maximum number of connections of a generated case.
const MAX_CONNECTIONS: u64 = 1000;

/// Returns the name of a server pod.
fn server_name(index: usize) -> String {
    format!("web-{index}")
}

fn pod(name: &str, node: usize, at: usize, labels: &Value, ports: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"nodeName": format!("node-{node}"), "containers": [{"name": "c", "ports": ports}]},
        "status": {"podIP": format!("10.244.{node}.{}", 10 + at)},
    })
}

fn serving_pod(at: usize, app: &str, choices: &mut Choices<'_>, nodes: usize) -> Value {
    let ports = json!([{"containerPort": 8080}, {"containerPort": 5353, "protocol": "UDP"}]);
    let node = 1 + choices.below(nodes);
    pod(&server_name(at), node, at, &json!({"app": app}), &ports)
}

/// Draws a case of a valid lab, either as generated or with some values changed. Ignores the
/// changes if the changed lab is invalid.
///
/// # Panics
///
/// When a generated lab without changes is refused.
pub fn draw(choices: &mut Choices<'_>) -> Prepared {
    let lab = draw_lab(choices);
    if choices.below(2) == 1 {
        let mut changed = lab.clone();
        change_lab(&mut changed, std::slice::from_ref(&lab), choices);
        match case_of(&changed, choices) {
            Ok(prepared) if is_small(&prepared) => return prepared,
            _ => {}
        }
    }
    case_of(&lab, choices).unwrap_or_else(|why| panic!("{why}{}", render_documents(&lab)))
}

/// Whether the evidence of all connections is small enough to build it many times a second.
fn is_small(prepared: &Prepared) -> bool {
    let probes = prepared.plan.probes();
    let connections = probes.map(|probe| u64::from(probe.connections));
    connections.fold(0, u64::saturating_add) <= MAX_CONNECTIONS
}

/// Prepares a case of a lab. Returns the reason if the lab or the case is invalid.
pub fn case_of(lab: &[Value], choices: &mut Choices<'_>) -> Result<Prepared, String> {
    let source = Source::from_bytes("drawn", render_documents(lab).into_bytes());
    let sources = Sources::from(source.map_err(|error| error.to_string())?);
    let loaded = Scenario::load(&sources);
    let (scenario, warnings) = loaded.map_err(|errors| messages(&errors))?;
    let lab = SelectedLab {
        cases: Vec::new(),
        cli_name: scenario.name().to_owned(),
        scenario,
        warnings,
    };
    let cases = lab.scenario.cases();
    if cases.is_empty() {
        return Err("the lab has no case".to_owned());
    }
    let case = &cases[choices.below(cases.len())];
    prepare(&lab, case, MaxWait::SETTLED).map_err(|errors| messages(&errors))
}

fn messages(errors: &[Diagnostic]) -> String {
    let lines = errors.iter().map(|error| format!("{}\n", error.message));
    lines.collect()
}

/// Draws the documents of a lab.
pub fn draw_lab(choices: &mut Choices<'_>) -> Vec<Value> {
    let nodes = 1 + choices.below(3);
    let services = 1 + choices.below(2);
    let servers = services + choices.below(3);
    let mut documents = vec![Value::Null];
    for node in 1..=nodes {
        documents.push(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": format!("node-{node}")},
            "spec": {"podCIDR": format!("10.244.{node}.0/24")},
            "status": {"addresses": [{"type": "InternalIP", "address": format!("192.168.{node}.11")}]},
        }));
    }
    documents.push(pod("client", 1, 200, &json!({}), &json!([])));
    for at in 0..servers {
        // Ensures that each service has an endpoint.
        let app = if at < services {
            at
        } else {
            choices.below(services)
        };
        documents.push(serving_pod(at, &format!("app-{app}"), choices, nodes));
    }
    for at in 0..services {
        documents.push(draw_service(at, choices));
    }
    documents[0] = LabBuilder {
        nodes,
        servers,
        services,
        choices,
    }
    .lab_document();
    documents
}

fn draw_service(at: usize, choices: &mut Choices<'_>) -> Value {
    let kind = choices.pick(&["ClusterIP", "NodePort", "LoadBalancer"]);
    let mut http = json!({"name": "http", "port": 80, "targetPort": 8080});
    let mut dns = json!({"name": "dns", "protocol": "UDP", "port": 53, "targetPort": 5353});
    let mut spec = json!({
        "type": kind,
        "clusterIP": format!("10.96.0.{}", 10 + at),
        "selector": {"app": format!("app-{at}")},
    });
    let mut status = json!({});
    if kind != "ClusterIP" {
        http["nodePort"] = json!(30080 + at);
        dns["nodePort"] = json!(30180 + at);
        spec["externalTrafficPolicy"] = json!(choices.pick(&["Cluster", "Local"]));
    }
    if kind == "LoadBalancer" {
        status = json!({"loadBalancer": {"ingress": [{"ip": format!("203.0.114.{}", 10 + at)}]}});
    }
    if choices.below(4) == 3 {
        spec["sessionAffinity"] = json!("ClientIP");
    }
    if choices.below(4) == 3 {
        spec["internalTrafficPolicy"] = json!("Local");
    }
    spec["ports"] = json!([http, dns]);
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": format!("svc-{at}"), "namespace": "default"},
        "spec": spec,
        "status": status,
    })
}

/// State for drawing the lab document after its objects.
struct LabBuilder<'c, 'b> {
    nodes: usize,
    servers: usize,
    services: usize,
    choices: &'c mut Choices<'b>,
}

impl LabBuilder<'_, '_> {
    fn lab_document(&mut self) -> Value {
        let (version, mode) = self.choices.pick(&PROXIES);
        let mut names = Vec::new();
        let mut probes = Map::new();
        for at in 0..=self.choices.below(3) {
            let (name, probe) = self.draw_probe(format!("probe{at}"));
            names.push((name.clone(), probe.clone()));
            probes.insert(name, probe);
        }
        let mut steps = Vec::new();
        // Only a real kube-proxy changes virtual servers of IPVS.
        let max_steps = if mode == "ipvs" { 0 } else { 3 };
        for at in 0..self.choices.below(max_steps) {
            let step = format!("step{at}");
            if self.choices.below(2) == 1 {
                let (name, mut probe) = self.draw_probe(format!("open{at}"));
                if probe["protocol"] != "ping" {
                    probe["across"] = json!(step);
                }
                names.push((name.clone(), probe.clone()));
                probes.insert(name, probe);
            }
            let mut probes_of_step = Map::new();
            if self.choices.below(2) == 1 {
                let (name, probe) = self.draw_probe(format!("later{at}"));
                names.push((name.clone(), probe.clone()));
                probes_of_step.insert(name, probe);
            }
            steps.push(
                json!({"name": step, "change": [self.draw_change(at)], "probes": probes_of_step}),
            );
        }
        let mut axes = json!({});
        let mut expect = Vec::new();
        if self.choices.below(2) == 1 {
            let patch = json!({"patch": "Lab", "merge": {"spec": {"iptables": "legacy"}}});
            axes = json!({"tables": {"nft": [], "legacy": [patch]}});
            let mut row = self.draw_row(&names, mode, &steps);
            row["when"] = json!({"tables": "legacy"});
            expect.push(row);
        }
        expect.push(self.draw_row(&names, mode, &steps));
        let fabric = json!({"foreignSources": self.choices.pick(&["pass", "drop"])});
        json!({
            "apiVersion": "svclab/v1",
            "kind": "Lab",
            "metadata": {"name": "drawn"},
            "spec": {
                "about": "A generated lab.",
                "kubeProxy": {"version": version, "mode": mode, "clusterCIDR": "10.244.0.0/16"},
                "fabric": fabric,
                "hosts": {"laptop": {"address": "203.0.113.9/24", "ports": [9000]}},
                "probes": probes,
                "steps": steps,
                "axes": axes,
                "expect": expect,
            },
        })
    }

    fn draw_source(&mut self) -> String {
        match self.choices.below(4) {
            0 => "pod/default/client".to_owned(),
            1 => "host/laptop".to_owned(),
            2 => format!("node-{}", 1 + self.choices.below(self.nodes)),
            _ => format!(
                "pod/default/{}",
                server_name(self.choices.below(self.servers))
            ),
        }
    }

    fn draw_probe(&mut self, name: String) -> (String, Value) {
        let from = self.draw_source();
        let (protocol, ports) =
            self.choices
                .pick(&[("tcp", (80, 8080)), ("udp", (53, 5353)), ("ping", (0, 0))]);
        let to = match (self.choices.below(3), protocol) {
            (_, "ping") => self.draw_source(),
            (0, _) => format!(
                "pod/default/{}:{}",
                server_name(self.choices.below(self.servers)),
                ports.1
            ),
            (1, _) => "host/laptop:9000".to_owned(),
            _ => format!(
                "service/default/svc-{}:{}",
                self.choices.below(self.services),
                ports.0
            ),
        };
        let connections = 1 + self.choices.below(6);
        let probe =
            json!({"from": from, "to": to, "protocol": protocol, "connections": connections});
        (name, probe)
    }

    /// Draws a change that no other step makes.
    fn draw_change(&mut self, step: usize) -> Value {
        let service = format!("Service/default/svc-{}", self.choices.below(self.services));
        match self.choices.below(3) {
            0 => json!({"add": serving_pod(10 + step, "app-0", self.choices, self.nodes)}),
            1 if self.services + step < self.servers => {
                json!({"terminate": format!("Pod/default/{}", server_name(self.services + step))})
            }
            _ => {
                let config = json!({"clientIP": {"timeoutSeconds": 100 + step}});
                let spec = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": config});
                json!({"patch": service, "merge": {"spec": spec}})
            }
        }
    }

    fn draw_row(&mut self, probes: &[(String, Value)], mode: &str, steps: &[Value]) -> Value {
        let mut row = json!({});
        for (name, probe) in probes {
            row[name] = self.draw_expectation(probe);
        }
        let count = [json!(0), json!(1), json!(">=1"), json!("0..3")];
        let node = format!("node-{}", 1 + self.choices.below(self.nodes));
        if self.choices.below(4) == 3 {
            let see = self
                .choices
                .pick(&["SYN", "UDP from pod/default/client", "ANY"]);
            let on = format!("{node}/eth0");
            row["wire"] = json!([{"on": on, "see": see, "count": self.choices.pick(&count)}]);
        }
        if self.choices.below(4) == 3 {
            let counter = "TcpExtIPReversePathFilter";
            row["counters"] =
                json!([{"on": node, "counter": counter, "grows": self.choices.pick(&count)}]);
        }
        if self.choices.below(4) == 3 {
            let (table, chain, rule) = ("nat", "KUBE-POSTROUTING", "-j MASQUERADE");
            row["rules"] = json!([{
                "on": node, "table": table, "chain": chain, "rule": rule,
                "hits": self.choices.pick(&count),
            }]);
        }
        if self.choices.below(4) == 3 {
            let is = self.choices.pick(&[json!([]), json!(["-j RETURN"])]);
            row["chains"] =
                json!([{"on": node, "table": "nat", "chain": "KUBE-MARK-MASQ", "is": is}]);
        }
        if self.choices.below(4) == 3 {
            let members = self
                .choices
                .pick(&[json!([]), json!(["192.168.1.11,tcp:80"])]);
            row["sets"] = json!([{
                "on": node, "set": "KUBE-CLUSTER-IP", "type": "hash:ip,port", "members": members,
            }]);
        }
        if mode == "ipvs" && self.choices.below(4) == 3 {
            let is = self
                .choices
                .pick(&[json!([]), json!(["-A -t 10.96.0.10:80 -s rr"])]);
            row["ipvs"] = json!([{"on": node, "server": "10.96.0.10:80", "is": is}]);
            let on = format!("{node}/kube-ipvs0");
            row["links"] = json!([{"on": on, "flags": ["NOARP"], "addresses": ["10.96.0.10/32"]}]);
        }
        for step in steps {
            if self.choices.below(3) == 2 {
                let name = step["name"].as_str().unwrap_or_default();
                row["steps"][name] = json!({"within": "2s"});
            }
        }
        row
    }

    /// Draws the expected verdicts of a probe, for its number of connections.
    fn draw_expectation(&mut self, probe: &Value) -> Value {
        let verdicts: &[&str] = match probe["protocol"].as_str() {
            Some("udp") => &["answered", "timeout", "refused", "unreachable"],
            Some("ping") => &["answered", "timeout", "unreachable"],
            _ => &[
                "connected",
                "timeout",
                "refused",
                "unreachable",
                "reset",
                "silent",
            ],
        };
        let connections = probe["connections"].as_u64().unwrap_or(1);
        let mut outcome = json!({});
        match self.choices.below(5) {
            0 => return json!("any"),
            1 => outcome[verdicts[0]] = json!(connections),
            2 => outcome[verdicts[0]] = json!(">=1"),
            3 => {
                let some = self
                    .choices
                    .below(usize::try_from(connections).unwrap_or(1));
                let verdict = self.choices.pick(&verdicts[1..]);
                outcome[verdicts[0]] = json!(connections - some as u64);
                outcome[verdict] = json!(some);
            }
            _ => {
                outcome[verdicts[0]] = json!(format!("0..{connections}"));
                outcome[self.choices.pick(&verdicts[1..])] = json!(">=0");
            }
        }
        if self.choices.below(3) == 2 {
            outcome["endpoints"] = json!([server_name(self.choices.below(self.servers))]);
        }
        match self.choices.below(8) {
            6 => outcome["seenSource"] = json!(self.draw_source()),
            7 => outcome["seenSources"] = json!([self.draw_source(), "node-1"]),
            _ => {}
        }
        outcome
    }
}
