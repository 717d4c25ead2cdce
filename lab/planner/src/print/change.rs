//! Renders the changes of a step in the formats of the tools that can apply them by hand.

use std::fmt::Write as _;

use super::{addresses_of, call, lines, netns, on_one_line, words};
use svclab_model::plan::delta::Change;
use svclab_model::plan::{HealthCheck, Plan, Step};
use svclab_model::tools::iptables_program;

/// Renders all steps of a plan.
pub fn steps(plan: &Plan) -> String {
    plan.steps.iter().map(step).collect()
}

fn step(step: &Step) -> String {
    let mut text = format!("\n# ==== step {}\n", on_one_line(&step.name));
    let mut say = |title: &str, lines: Vec<String>| {
        for (at, line) in lines.iter().enumerate() {
            if at == 0 {
                let _ = writeln!(text, "# {title}:");
            }
            let _ = writeln!(text, "#   {}", on_one_line(line));
        }
    };
    say("opened before, and spoken on last", probes(&step.open));
    say(
        "servers that end",
        step.delta.stop.iter().map(words::server).collect(),
    );
    say(
        "servers that begin",
        step.delta.start.iter().map(words::server).collect(),
    );
    if let Some(checks) = &step.delta.health {
        say("asked from then on", checks.iter().map(check).collect());
    }
    if let Some(told) = &step.told {
        let told = format!("all {} objects as they are then", told.objects.len());
        say("kube-proxies are told of", vec![told]);
    }
    for change in &step.delta.namespaces {
        text.push_str(&namespace(change));
    }
    for (name, stale) in &step.forget {
        text.push_str(&call(&netns(name), &[]));
        for forget in stale {
            let _ = writeln!(text, "# {}", on_one_line(&forget.to_string()));
        }
    }
    let tried = probes(&step.probes);
    if !tried.is_empty() {
        text.push_str("\n# tried then:\n");
        for line in tried {
            let _ = writeln!(text, "#   {}", on_one_line(&line));
        }
    }
    text
}

fn probes(probes: &[svclab_model::plan::Probe]) -> Vec<String> {
    probes.iter().map(words::probe).collect()
}

fn check(check: &HealthCheck) -> String {
    format!("{} by {}", check.backend, check.namespace)
}

/// Renders the changes of one namespace in the order in which they are applied.
fn namespace(change: &Change) -> String {
    let name = netns(&change.namespace);
    let mut text = String::new();
    let mut run = |command: &str, input: &str| {
        if !input.is_empty() {
            let words: Vec<&str> = command.split(' ').collect();
            text.push_str(&call(&name, &words));
            text.push_str(input);
            if !input.ends_with('\n') {
                text.push('\n');
            }
        }
    };
    let settings = change.sysctls.iter();
    let settings = settings.map(|setting| format!("{} = {}", setting.key, setting.value));
    run("sysctl -p -", &lines(settings));
    run("ip -batch -", &links(change));
    let entries = |verb: &str, all: &[svclab_model::plan::Forwarding]| -> String {
        let said = all.iter().map(super::forwarding);
        lines(said.map(|line| line.replacen("add", verb, 1)))
    };
    let forwarding =
        entries("del", &change.forwarding.remove) + &entries("add", &change.forwarding.add);
    run("bridge -batch -", &forwarding);
    let gone = change.ipvs.remove.iter();
    let gone = lines(gone.map(|server| format!("-D {}", server.takes)));
    let come: String = change.ipvs.add.iter().map(ToString::to_string).collect();
    run("ipvsadm -R", &(gone + &come));
    if let Some(sets) = &change.sets {
        run("ipset restore", &sets.before);
    }
    for rules in change.iptables.iter().chain(&change.beside) {
        let batches = &rules.batches;
        for (family, batch) in [(4, &batches.v4), (6, &batches.v6)] {
            let program = iptables_program(family, batches.backend, "restore");
            run(&format!("{program} --noflush"), batch);
        }
    }
    if let Some(tables) = &change.nft {
        let go = tables
            .go
            .iter()
            .map(|table| format!("delete table {table}"));
        run("nft -f -", &(lines(go) + &tables.come));
    }
    if let Some(sets) = &change.sets {
        run("ipset restore", &sets.after);
    }
    text
}

fn links(change: &Change) -> String {
    let mut said = Vec::new();
    for link in &change.links {
        let name = &link.name;
        for address in &link.addresses.remove {
            said.push(format!("address del {address} dev {name}"));
        }
        said.extend(addresses_of(name, &link.addresses.add));
        if let Some(mtu) = link.mtu {
            said.push(format!("link set dev {name} mtu {mtu}"));
        }
        if let Some(up) = link.up {
            said.push(format!(
                "link set dev {name} {}",
                if up { "up" } else { "down" }
            ));
        }
    }
    let gone = |line: String| line.replacen("add", "del", 1);
    let routes = change
        .routes
        .remove
        .iter()
        .map(|route| gone(super::route(route)));
    said.extend(routes);
    let neighbours = change.neighbours.remove.iter();
    said.extend(neighbours.map(|each| format!("neighbour del {} dev {}", each.address, each.dev)));
    said.extend(change.neighbours.add.iter().map(super::neighbour));
    said.extend(change.routes.add.iter().map(super::route));
    lines(said.into_iter())
}
