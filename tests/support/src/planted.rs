//! Generates pairs of nodes with a thousand harmless differences. One more difference, or two that
//! act only together, breaks a connection.

use std::fmt::Write as _;
use std::time::Duration;

use crate::append_text;
use svclab_model::plan::{Iptables, Namespace, Neighbour, Plan, Route};
use svclab_ruleset::input::Input;
use svclab_runner::run::{prepare, select_labs};

use crate::topologies;

/// Number of services on both nodes.
const SERVICE_COUNT: u32 = 1000;

/// Number of harmless changes to either node; some undo or repeat others.
const HARMLESS_CHANGES: u32 = 1100;

/// Address of the pod that answers.
const WEB: &str = "10.244.2.10";

/// Pseudorandom numbers from a seed (Steele, Lea and Flood's `SplitMix64`).
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `all`.
    pub fn below(&mut self, limit: usize) -> usize {
        let all = u64::try_from(limit).expect("a number of 64 bits");
        usize::try_from(self.next() % all).expect("the number is below the limit")
    }
}

/// Kind of difference that breaks the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Culprit {
    /// A rule that only the bad side has.
    Rule,
    /// A rule that only the good side has.
    LostRule,
    /// An entry of a set that rules on both sides use.
    Entry,
    Route,
    Sysctl,
    Address,
    /// A rule that sets a mark, and a rule that drops packets with this mark.
    MarkAndDrop,
    /// A set entry, and a rule that uses the set.
    EntryAndRule,
    /// A jump, and a rule in its target chain.
    JumpAndRule,
}

impl Culprit {
    pub const ALL: [Self; 9] = [
        Self::Rule,
        Self::LostRule,
        Self::Entry,
        Self::Route,
        Self::Sysctl,
        Self::Address,
        Self::MarkAndDrop,
        Self::EntryAndRule,
        Self::JumpAndRule,
    ];

    /// Returns the number of differences of this culprit.
    pub fn size(self) -> usize {
        match self {
            Self::MarkAndDrop | Self::EntryAndRule | Self::JumpAndRule => 2,
            _ => 1,
        }
    }
}

/// Plans of both nodes, and the texts of the differences that break the connection.
pub struct Planted {
    pub good: Plan,
    pub bad: Plan,
    pub culprits: Vec<String>,
}

/// Builds the lab of both nodes. A pod on node-1 connects to one of a thousand services of
/// kube-proxy v1.30, whose endpoint is on node-2.
pub fn lab() -> Plan {
    let directory = tempfile::tempdir().expect("a directory");
    let path = topologies().join("bench/six-namespaces.yaml");
    let mut text = std::fs::read_to_string(path).expect("a lab");
    for index in 0..SERVICE_COUNT {
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: other-{index}, namespace: default}}\nspec:\n  \
             clusterIP: 10.96.{}.{}\n  selector: {{app: web}}\n  ports: [{{port: 80, targetPort: 8080}}]\n",
            10 + index / 200,
            1 + index % 200
        );
    }
    let file = directory.path().join("six-namespaces.yaml");
    std::fs::write(&file, text).expect("a file");
    let name = format!("{}/iptables=legacy", file.display());
    let labs = select_labs(&[name], directory.path()).expect("the lab exists");
    let case = &labs[0].scenario.cases()[labs[0].cases[0]];
    let prepared =
        prepare(&labs[0], case, Duration::from_secs(3)).expect("the case can be prepared");
    let mut plan = prepared.plan;
    plan.truncate_stages(1);
    plan
}

/// Node of one side, under construction.
struct Node {
    namespace: Namespace,
    /// Rule lines by table.
    rules: Vec<(String, Vec<String>)>,
}

impl Node {
    fn from_plan(plan: &Plan) -> Self {
        let namespace = plan.namespace("node-1").expect("a node").clone();
        let text = namespace.iptables.clone().expect("rules").v4;
        let mut rules: Vec<(String, Vec<String>)> = Vec::new();
        for line in text.text().lines() {
            match line.strip_prefix('*') {
                Some(table) => rules.push((table.to_owned(), Vec::new())),
                None if line == "COMMIT" => {}
                None => rules.last_mut().expect("a table").1.push(line.to_owned()),
            }
        }
        Self { namespace, rules }
    }

    fn table(&mut self, name: &str) -> &mut Vec<String> {
        let found = self.rules.iter_mut().find(|(table, _)| table == name);
        &mut found.expect("a table").1
    }

    fn insert_forward_rules(&mut self, rules: &[&str]) {
        let filter = self.table("filter");
        let at = filter
            .iter()
            .position(|line| line.contains(" FORWARD "))
            .expect("a rule");
        let rules = rules.iter().map(|rule| format!("-A FORWARD {rule}"));
        filter.splice(at..at, rules);
    }

    fn into_plan(mut self, plan: &Plan) -> Plan {
        let mut text = String::new();
        for (table, lines) in &self.rules {
            let _ = writeln!(text, "*{table}\n{}\nCOMMIT", lines.join("\n"));
        }
        let rules = self.namespace.iptables.as_ref().expect("rules");
        self.namespace.iptables = Some(Iptables {
            v4: Input::from_text(text),
            ..rules.clone()
        });
        let mut plan = plan.clone();
        let slot = plan
            .namespaces
            .iter_mut()
            .find(|namespace| namespace.name == "node-1");
        *slot.expect("a node") = self.namespace;
        plan
    }
}

/// Returns the lab with rules at the top of the FORWARD chain of node-1.
pub fn with_forward_rules(lab: &Plan, rules: &[&str]) -> Plan {
    let mut node = Node::from_plan(lab);
    node.insert_forward_rules(rules);
    node.into_plan(lab)
}

/// Generates a pair with a culprit of that kind.
pub fn generate_pair(lab: &Plan, culprit: Culprit, random: &mut Random) -> Planted {
    let mut sides = [Node::from_plan(lab), Node::from_plan(lab)];
    for side in &mut sides {
        let sets = "create ELSEWHERE hash:ip family inet\ncreate NOWHERE hash:ip family inet\n";
        append_text(&mut side.namespace.ipset, sets);
        let filter = side.table("filter");
        filter.push("-A FORWARD -m set --match-set ELSEWHERE dst -j DROP".to_owned());
    }
    for at in 0..HARMLESS_CHANGES {
        let side = &mut sides[random.below(2)];
        change_harmlessly(side, at, random);
    }
    let culprits = plant(&mut sides, culprit, random);
    let [good, bad] = sides.map(|side| side.into_plan(lab));
    Planted {
        good,
        bad,
        culprits,
    }
}

/// Applies one change that does not affect the connection.
fn change_harmlessly(side: &mut Node, index: u32, random: &mut Random) {
    let (high, low) = (index / 200, 1 + index % 200);
    match random.below(20) {
        0..=8 => {
            // Adds a rule for a service that no probe uses.
            let nat = side.table("nat");
            let place = random_position(nat, "KUBE-SERVICES", random);
            nat.insert(
                place,
                format!(
                    "-A KUBE-SERVICES -d 10.97.{high}.{low}/32 -p tcp -m tcp --dport 80 -j ACCEPT"
                ),
            );
        }
        9..=10 => {
            // Removes the rules of a service that only the other side keeps.
            let nat = side.table("nat");
            let comment = format!("other-{index} cluster IP");
            nat.retain(|line| !(line.starts_with("-A KUBE-SERVICES") && line.contains(&comment)));
        }
        11..=13 => {
            let set = ["ELSEWHERE", "NOWHERE"][random.below(2)];
            let entry = format!("add {set} 10.98.{high}.{low}\n");
            append_text(&mut side.namespace.ipset, &entry);
        }
        14..=15 => side.namespace.routes.push(Route {
            via: Some("192.168.1.1".parse().expect("an address")),
            ..Route::new(
                format!("10.99.{high}.{low}/32").parse().expect("a network"),
                "eth0",
            )
        }),
        16..=17 => {
            let address = format!("10.100.{high}.{low}/32")
                .parse()
                .expect("an address");
            let links = &mut side.namespace.links;
            let eth0 = links.iter_mut().find(|link| link.name == "eth0");
            eth0.expect("an interface").addresses.push(address);
        }
        18 => side.namespace.neighbours.push(Neighbour {
            address: format!("192.168.1.{}", 20 + low)
                .parse()
                .expect("an address"),
            mac: "0a:58:00:00:00:01".parse().expect("a link-layer address"),
            dev: "eth0".to_owned(),
        }),
        _ => {
            let words = [
                "log_martians",
                "send_redirects",
                "accept_redirects",
                "arp_announce",
                "arp_filter",
            ];
            let word = words[random.below(words.len())];
            let links = ["default", "eth0", "cbr0"];
            let key = format!("net.ipv4.conf.{}.{word}", links[random.below(links.len())]);
            let sysctls = side.namespace.sysctls.iter_mut();
            let mut matching = sysctls.filter(|sysctl| sysctl.key == key);
            let own = matching.next().expect("the plan sets the sysctl");
            "1".clone_into(&mut own.value);
        }
    }
    side.namespace
        .neighbours
        .dedup_by(|first, second| first.address == second.address);
}

/// Returns the random position of a rule in a chain.
fn random_position(lines: &[String], chain: &str, random: &mut Random) -> usize {
    let begins = format!("-A {chain} ");
    let positions: Vec<usize> = (0..lines.len())
        .filter(|at| lines[*at].starts_with(&begins))
        .collect();
    positions[random.below(positions.len())]
}

/// Breaks the connection on the bad side. Returns the texts of the differences.
fn plant([good, bad]: &mut [Node; 2], culprit: Culprit, random: &mut Random) -> Vec<String> {
    let drop = format!("-d {WEB}/32 -p tcp -m tcp --dport 8080 -j DROP");
    let forward = |side: &mut Node, rule: &str| side.insert_forward_rules(&[rule]);
    match culprit {
        Culprit::Rule => {
            forward(bad, &drop);
            vec![drop]
        }
        Culprit::LostRule => {
            let nat = bad.table("nat");
            // The chain of this service's endpoint; each other service has another endpoint chain.
            let dnat = |line: &&String| {
                line.starts_with("-A KUBE-SEP-6UPWGGTAKQAHVD27 ") && line.contains("-j DNAT")
            };
            let lost = nat.iter().find(dnat).expect("a rule").clone();
            nat.retain(|line| *line != lost);
            let words = lost.splitn(3, ' ').nth(2).expect("a rule");
            vec![words.to_owned()]
        }
        Culprit::Entry => {
            append_text(&mut bad.namespace.ipset, &format!("add ELSEWHERE {WEB}\n"));
            vec![WEB.to_owned()]
        }
        Culprit::Route => {
            let to = format!("{WEB}/32").parse().expect("a network");
            bad.namespace.routes.push(Route::new(to, "cbr0"));
            vec![format!("{WEB}/32 dev cbr0")]
        }
        Culprit::Sysctl => {
            let sysctls = bad.namespace.sysctls.iter_mut();
            let mut matching = sysctls.filter(|sysctl| sysctl.key == "net.ipv4.ip_forward");
            let own = matching.next().expect("the plan sets the sysctl");
            "0".clone_into(&mut own.value);
            vec!["net.ipv4.ip_forward = 0".to_owned()]
        }
        Culprit::Address => {
            let links = &mut bad.namespace.links;
            let eth0 = links.iter_mut().find(|link| link.name == "eth0");
            let addresses = &mut eth0.expect("an interface").addresses;
            // Not inserted first: packets are sent with the first address.
            let at = 1 + random.below(addresses.len());
            addresses.insert(
                at.min(addresses.len()),
                format!("{WEB}/32").parse().expect("an address"),
            );
            vec![format!("{WEB}/32")]
        }
        Culprit::MarkAndDrop => {
            let mark = format!("-d {WEB}/32 -j MARK --set-xmark 0x80000/0x80000");
            let marked = "-m mark --mark 0x80000/0x80000 -j DROP";
            bad.table("mangle").push(format!("-A FORWARD {mark}"));
            forward(bad, marked);
            vec![mark, marked.to_owned()]
        }
        Culprit::EntryAndRule => {
            append_text(&mut bad.namespace.ipset, &format!("add NOWHERE {WEB}\n"));
            let rule = "-m set --match-set NOWHERE dst -j DROP";
            forward(bad, rule);
            vec![WEB.to_owned(), rule.to_owned()]
        }
        Culprit::JumpAndRule => {
            // Both sides have the chain, and its first rule drops nothing here.
            for side in [good, &mut *bad] {
                let filter = side.table("filter");
                filter.insert(0, ":ODD - [0:0]".to_owned());
                filter.push("-A ODD -s 10.101.0.0/16 -j DROP".to_owned());
            }
            bad.table("filter").push(format!("-A ODD {drop}"));
            forward(bad, "-j ODD");
            vec!["-j ODD".to_owned(), drop]
        }
    }
}
