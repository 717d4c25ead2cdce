//! Renders changes of IPVS virtual servers and of ipsets.

use svclab_model::plan::{Namespace, VirtualServer};
use svclab_ruleset::input::Input;
use svclab_ruleset::ipset::saved::Sets;
use svclab_ruleset::ipvs::{Forwarding, RealServer, VirtualServerKey};

/// Returns the commands for changed virtual servers and timeouts.
pub(super) fn virtual_server_commands(old: &Namespace, new: &Namespace) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(timeouts) = new
        .ipvs_timeouts
        .filter(|_| old.ipvs_timeouts != new.ipvs_timeouts)
    {
        lines.push(format!("ipvsadm {}", timeouts.to_string().trim_end()));
    }
    let removed = old
        .ipvs
        .iter()
        .filter(|server| find_server(&new.ipvs, server.key).is_none());
    lines.extend(removed.map(|server| format!("ipvsadm -D {}", server.key)));
    for server in &new.ipvs {
        if let Some(current) = find_server(&old.ipvs, server.key) {
            lines.extend(changed_server(current, server));
        } else {
            let text = server.to_string();
            lines.extend(text.lines().map(|line| format!("ipvsadm {line}")));
        }
    }
    lines
}

fn find_server(servers: &[VirtualServer], key: VirtualServerKey) -> Option<&VirtualServer> {
    servers.iter().find(|server| server.key == key)
}

fn changed_server(old: &VirtualServer, new: &VirtualServer) -> Vec<String> {
    let mut lines = Vec::new();
    let head = |server: &VirtualServer| {
        let bare = VirtualServer {
            servers: Vec::new(),
            ..server.clone()
        };
        bare.to_string().trim_end().to_owned()
    };
    if head(old) != head(new) {
        lines.push(format!("ipvsadm {}", head(new).replacen("-A", "-E", 1)));
    }
    let key = new.key;
    let find = |servers: &[RealServer], wanted: &RealServer| {
        let mut servers = servers.iter();
        servers.find(|real| real.address == wanted.address).copied()
    };
    let removed = old
        .servers
        .iter()
        .filter(|real| find(&new.servers, real).is_none());
    lines.extend(removed.map(|real| format!("ipvsadm -d {key} -r {}", real.address)));
    for real in &new.servers {
        let verb = match find(&old.servers, real) {
            Some(current) if current == *real => continue,
            Some(_) => "-e",
            None => "-a",
        };
        let method = match real.method {
            Forwarding::Masquerade => "-m",
            Forwarding::Route => "-g",
            Forwarding::Tunnel => "-i",
        };
        lines.push(format!(
            "ipvsadm {verb} {key} -r {} {method} -w {}",
            real.address, real.weight
        ));
    }
    lines
}

/// Returns the commands for changed sets: those before the rules change, and those after.
pub(super) fn set_commands(old: &Input<Sets>, new: &Input<Sets>) -> (Vec<String>, Vec<String>) {
    let (Ok(old), Ok(new)) = (old.state(), new.state()) else {
        return (Vec::new(), Vec::new());
    };
    let mut before = Vec::new();
    for (name, set) in new {
        let current = old.get(name);
        if current.is_none() {
            before.push(format!("ipset create {name} {}", set.creation()));
        }
        let removed = current
            .into_iter()
            .flat_map(|current| current.entries.keys());
        let removed = removed.filter(|entry| !set.entries.contains_key(*entry));
        before.extend(removed.map(|entry| format!("ipset del {name} {entry}")));
        let added = set.entries.iter().filter(|(entry, _)| {
            !current.is_some_and(|current| current.entries.contains_key(*entry))
        });
        before.extend(
            added.map(|(entry, options)| format!("ipset add {name} {entry}{}", options.suffix())),
        );
    }
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    let after = gone.map(|name| format!("ipset destroy {name}"));
    (before, after.collect())
}
