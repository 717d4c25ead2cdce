//! Renders the changes of a step in the formats of the tools that can apply them by hand.

use std::fmt::Write as _;

use super::network::{
    address_commands, forwarding_command, neighbour_command, port_state_command, route_command,
};
use super::{
    descriptions, escape_newlines, join_lines, netns_exec_comment, netns_name, with_final_newline,
};
use svclab_model::plan::delta::NamespaceDelta;
use svclab_model::plan::{HealthCheck, Lifetime, Plan, PortSettings, Stage, Step};
use svclab_model::tools::iptables_program;

/// Renders all steps of a plan.
pub fn render_steps(plan: &Plan) -> String {
    let stages = plan.stages.iter();
    stages
        .filter_map(|stage| Some(render_step(stage, stage.step.as_ref()?)))
        .collect()
}

fn render_step(stage: &Stage, step: &Step) -> String {
    let mut text = format!("\n# ==== step {}\n", escape_newlines(&step.name));
    let mut add_section = |title: &str, lines: Vec<String>| {
        for (index, line) in lines.iter().enumerate() {
            if index == 0 {
                let _ = writeln!(text, "# {title}:");
            }
            let _ = writeln!(text, "#   {}", escape_newlines(line));
        }
    };
    add_section(
        "connections opened before the step and used again after it",
        super::describe_probes(stage, Lifetime::Reused),
    );
    add_section(
        "stopped servers",
        step.delta
            .stop
            .iter()
            .map(descriptions::describe_server)
            .collect(),
    );
    add_section(
        "started servers",
        step.delta
            .start
            .iter()
            .map(descriptions::describe_server)
            .collect(),
    );
    if let Some(checks) = &step.delta.health {
        add_section(
            "health checks from this step on",
            checks.iter().map(render_check).collect(),
        );
    }
    if let Some(api_update) = &step.api_update {
        let description = format!("all {} objects after the step", api_update.objects.len());
        add_section("updates for kube-proxies", vec![description]);
    }
    for change in &step.delta.namespaces {
        text.push_str(&render_namespace(change));
    }
    for (name, stale) in &step.conntrack_deletions {
        text.push_str(&netns_exec_comment(&netns_name(name), &[]));
        for forget in stale {
            let _ = writeln!(text, "# {}", escape_newlines(&forget.to_string()));
        }
    }
    let probes_after = super::describe_probes(stage, Lifetime::Stage);
    if !probes_after.is_empty() {
        text.push_str("\n# probes after the step:\n");
        for line in probes_after {
            let _ = writeln!(text, "#   {}", escape_newlines(&line));
        }
    }
    text
}

fn render_check(check: &HealthCheck) -> String {
    format!("{} by {}", check.backend, check.namespace)
}

/// Renders the changes of one namespace in the order in which they are applied.
fn render_namespace(change: &NamespaceDelta) -> String {
    let name = netns_name(&change.namespace);
    let mut text = String::new();
    // Commands without an input are printed, commands with an empty input are not.
    let mut run = |command: &str, input: Option<&str>| {
        if input == Some("") {
            return;
        }
        let words: Vec<&str> = command.split(' ').collect();
        text.push_str(&netns_exec_comment(&name, &words));
        text.push_str(&with_final_newline(input.unwrap_or_default()));
    };
    let settings = change.sysctls.iter();
    let settings = settings.map(|setting| format!("{} = {}", setting.key, setting.value));
    run("sysctl -p -", Some(&join_lines(settings)));
    run("ip -batch -", Some(&render_links(change)));
    let removed = change.forwarding.remove.iter();
    let added = change.forwarding.add.iter().map(forwarding_command);
    let entries = removed.map(|entry| format!("fdb del {entry}")).chain(added);
    let states = change.links.iter().filter_map(|link| {
        let port = link.port?;
        Some(port_state_command(&link.name, port.forwarding))
    });
    run("bridge -batch -", Some(&join_lines(states.chain(entries))));
    let removed = change.ipvs.remove.iter();
    let gone = join_lines(removed.map(|server| format!("-D {}", server.key)));
    let added: String = change.ipvs.add.iter().map(ToString::to_string).collect();
    run("ipvsadm -R", Some(&(gone + &added)));
    if let Some(sets) = &change.sets {
        run("ipset restore", Some(&sets.before_rules()));
    }
    for object in &change.accounting {
        run(&format!("nfacct add {object}"), None);
    }
    for rules in change.iptables_rules() {
        let batches = &rules.batches;
        for (family, batch) in [(4, &batches.v4), (6, &batches.v6)] {
            let program = iptables_program(family, batches.backend, "restore");
            run(&format!("{program} --noflush"), Some(batch.text()));
        }
    }
    if let Some(tables) = &change.nft {
        run("nft -f -", Some(&tables.commands()));
    }
    if let Some(sets) = &change.sets {
        run("ipset restore", Some(&sets.after_rules()));
    }
    text
}

fn render_links(change: &NamespaceDelta) -> String {
    let mut commands = Vec::new();
    for link in &change.links {
        let name = &link.name;
        for address in &link.addresses.remove {
            commands.push(format!("address del {address} dev {name}"));
        }
        commands.extend(address_commands(name, &link.addresses.add));
        if let Some(mtu) = link.mtu {
            commands.push(format!("link set dev {name} mtu {mtu}"));
        }
        if let Some(port) = &link.port {
            let settings = port.settings().into_iter();
            let settings = settings.filter(|(setting, _)| *setting != "state");
            let settings = settings.map(|(setting, is_on)| {
                format!(" {setting} {}", PortSettings::value(setting, is_on))
            });
            let settings: String = settings.collect();
            commands.push(format!("link set dev {name} type bridge_slave{settings}"));
        }
        if let Some(up) = link.up {
            commands.push(format!(
                "link set dev {name} {}",
                if up { "up" } else { "down" }
            ));
        }
    }
    let as_deletion = |line: String| line.replacen("add", "del", 1);
    let routes = change
        .routes
        .remove
        .iter()
        .map(|route| as_deletion(route_command(route)));
    commands.extend(routes);
    let neighbours = change.neighbours.remove.iter();
    commands
        .extend(neighbours.map(|each| format!("neighbour del {} dev {}", each.address, each.dev)));
    commands.extend(change.neighbours.add.iter().map(neighbour_command));
    commands.extend(change.routes.add.iter().map(route_command));
    join_lines(commands.into_iter())
}
