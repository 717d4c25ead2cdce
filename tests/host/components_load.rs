//! Loads the scripts of the simulated components with the real tools into new network namespaces.
//! Compares the rules that the tools save with those of the model.

use std::{
    fs,
    process::{Command, Stdio},
};

use svclab_rules::{
    calico::{self, Calico},
    docker::{self, Docker},
    flannel::{self, EarlierFlannel, Flannel, NodeState},
    ip_masq_agent::{self, IpMasqAgent},
};
use svclab_ruleset::Family;
use svclab_ruleset::ipset::{IpsetScript, Set, SetType};
use svclab_ruleset::iptables::chains::Chains;
use svclab_ruleset::iptables::script::{IptablesScript, Table};

/// Both iptables programs of Debian, as the infixes of their names.
const BACKENDS: [&str; 2] = ["nft", "legacy"];

/// Loads the sets, then each script, in a new namespace. Returns the output of `iptables-save` and
/// of `ipset save`.
fn restore_and_save(
    backend: &str,
    sets: &IpsetScript,
    scripts: &[IptablesScript],
) -> (String, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: String| {
        fs::write(directory.path().join(name), text).expect("the file can be written");
    };
    file("sets", sets.to_string());
    let mut steps = vec!["ipset restore <sets".to_owned()];
    for (number, script) in scripts.iter().enumerate() {
        file(&format!("rules-{number}"), script.to_string());
        steps.push(format!(
            "iptables-{backend}-restore --noflush <rules-{number}"
        ));
    }
    // Saves each table by name: without root, the legacy program cannot list the tables.
    for table in ["nat", "filter"] {
        steps.push(format!("iptables-{backend}-save -t {table} >>rules"));
    }
    steps.push("ipset save >saved-sets".to_owned());
    let shell = steps.join("\n");

    let mut unshare = Command::new("unshare");
    unshare.arg("--net");
    if !nix::unistd::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    let output = unshare
        .args(["sh", "-euc", &shell])
        .current_dir(directory.path())
        // With the shared lock file, every legacy run would wait for all others.
        .env("XTABLES_LOCKFILE", directory.path().join("lock"))
        .stdin(Stdio::null())
        .output()
        .expect("unshare(1) runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{backend}: {complaint}\n{shell}");
    let read = |name| fs::read_to_string(directory.path().join(name)).expect("the saved rules");
    (read("rules"), read("saved-sets"))
}

/// Returns the rules of one chain as `iptables-save` prints them, without `-A CHAIN`.
fn saved_rules<'a>(saved: &'a str, table: Table, chain: &str) -> Vec<&'a str> {
    let start = format!("-A {chain} ");
    saved
        .lines()
        .skip_while(|line| *line != format!("*{table}"))
        .take_while(|line| *line != "COMMIT")
        .filter_map(|line| line.strip_prefix(start.as_str()))
        .collect()
}

/// Returns the sorted words of a rule, so that rules of different programs compare equal.
/// `iptables-save` moves addresses and interfaces to the front and shortens `--jump` to `-j`.
fn sorted_words(rule: &str) -> Vec<String> {
    let mut words: Vec<_> = rule
        .split_whitespace()
        .map(|word| if word == "--jump" { "-j" } else { word }.to_owned())
        .collect();
    words.sort();
    words
}

/// Loads one component with both backends, and asserts that every chain it changes reads back as in
/// the model.
fn check(name: &str, sets: &IpsetScript, scripts: &[IptablesScript]) {
    let mut model = Chains::new();
    for script in scripts {
        model.load(script).expect("the model accepts the script");
    }
    for backend in BACKENDS {
        let (saved, _) = restore_and_save(backend, sets, scripts);
        let mut compared = 0;
        for (table, block) in scripts.iter().flat_map(IptablesScript::tables) {
            let hooks = block.commands.iter().map(|command| command.chain.as_str());
            for chain in block.chains.iter().map(String::as_str).chain(hooks) {
                let wanted: Vec<_> = model
                    .rules(table, chain)
                    .iter()
                    .map(|rule| sorted_words(rule))
                    .collect();
                let found: Vec<_> = saved_rules(&saved, table, chain)
                    .into_iter()
                    .map(sorted_words)
                    .collect();
                assert_eq!(found, wanted, "{name}, {backend}: {table} {chain}\n{saved}");
                compared += wanted.len();
            }
        }
        assert!(compared > 0, "{name}, {backend}: nothing was compared");
    }
}

fn new_flannel(version: &str) -> Flannel {
    Flannel::new(
        version.parse().expect("a version"),
        "192.168.64.0/20".parse().expect("a network"),
    )
}

#[test]
fn docker_script_restored_reads_back() {
    check(
        "docker",
        &IpsetScript::new(),
        &[docker::script(&Docker::default())],
    );
}

#[test]
fn ip_masq_agent_script_restored_reads_back() {
    for version in ["v2.0.0", "v2.5.0", "v2.10.0", "v2.12.6"] {
        let config = IpMasqAgent {
            version: version.parse().expect("a version"),
            ..IpMasqAgent::default()
        };
        let script = ip_masq_agent::script(&config).expect("a valid configuration");
        check(version, &IpsetScript::new(), &[script]);
    }
}

#[test]
fn calico_script_restored_reads_back() {
    for version in ["v2.6.8", "v3.1.0", "v3.32.0"] {
        let config = Calico::new(
            version.parse().expect("a version"),
            vec!["192.168.64.0/20".parse().expect("a pool")],
        );
        let sets = calico::ipsets(&config).expect("two sets");
        let script = calico::script(&config).expect("a supported Felix version");
        check(version, &sets, &[script]);
    }
}

#[test]
fn flannel_start_and_restart_restored_read_back() {
    let lease = "192.168.64.0/24".parse().expect("a lease");
    for version in [
        "v0.9.0", "v0.9.1", "v0.11.0", "v0.16.2", "v0.19.0", "v0.20.0", "v0.20.2", "v0.21.0",
        "v0.21.3", "v0.25.1", "v0.25.2", "v0.28.9",
    ] {
        let config = new_flannel(version);
        let first =
            flannel::start_flanneld(&config, lease, &NodeState::default()).expect("a start");
        let again = flannel::start_flanneld(&config, lease, &first.state).expect("a restart");
        check(version, &IpsetScript::new(), &[first.script, again.script]);
    }
}

#[test]
fn flannel_start_after_older_version_reads_back() {
    for (before, after) in [
        ("v0.11.0", "v0.11.0"),
        ("v0.11.0", "v0.25.2"),
        ("v0.20.0", "v0.25.1"),
    ] {
        let earlier = EarlierFlannel {
            version: before.parse().expect("a version"),
            network: "10.10.0.0/16".parse().expect("a network"),
            lease: "10.10.3.0/24".parse().expect("a lease"),
            random_fully: None,
            subnet_file: true,
        };
        let (left, standing) = earlier
            .leftover_state()
            .expect("a supported flannel version");
        let lease = "192.168.64.0/24".parse().expect("a lease");
        let started =
            flannel::start_flanneld(&new_flannel(after), lease, &standing).expect("a start");
        let name = format!("{before} then {after}");
        check(
            &name,
            &IpsetScript::new(),
            &[left.clone(), started.script.clone()],
        );
        let mut together = left;
        together.append(started.script);
        check(
            &format!("{name}, together"),
            &IpsetScript::new(),
            &[together],
        );
    }
}

/// Rebuilds the node of S2: rules of a killed flannel remain, then docker, calico, kube-proxy and
/// flannel start in this order. The chain that is read back equals the chain of the write-up, rule
/// by rule.
#[test]
fn s2_components_started_match_write_up_chain() {
    let earlier = EarlierFlannel {
        version: "v0.10.0".parse().expect("a version"),
        network: "192.168.64.0/20".parse().expect("a network"),
        lease: "192.168.66.0/24".parse().expect("a lease"),
        random_fully: None,
        subnet_file: true,
    };
    let (left, standing) = earlier
        .leftover_state()
        .expect("a supported flannel version");

    let felix = Calico::new(
        "v3.0.12".parse().expect("a version"),
        vec!["192.168.64.0/20".parse().expect("a pool")],
    );
    let mut kube_proxy = IptablesScript::new();
    let nat = kube_proxy.table_mut(Table::Nat);
    nat.declare_chain("KUBE-POSTROUTING");
    nat.insert(
        "POSTROUTING",
        "-m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING",
    );

    let mut scripts = vec![
        left,
        docker::script(&Docker::default()),
        calico::script(&felix).expect("a supported Felix version"),
        kube_proxy,
    ];
    let mut chains = Chains::new();
    for script in &scripts {
        chains.load(script).expect("a script");
    }
    let standing = NodeState { chains, ..standing };
    let mut new = new_flannel("v0.11.0");
    // The MASQUERADE rules of the write-up lack `--random-fully`: its node had an old iptables.
    new.random_fully = Some(false);
    let lease = "192.168.64.0/24".parse().expect("a lease");
    let started = flannel::start_flanneld(&new, lease, &standing).expect("a start");
    scripts.push(started.script);
    // kube-proxy inserts its jump in front of calico's, until Felix refreshes its own.
    scripts.push(calico::refresh(&started.state.chains));

    let sets = calico::ipsets(&felix).expect("two sets");
    for backend in BACKENDS {
        let (saved, saved_sets) = restore_and_save(backend, &sets, &scripts);
        assert_eq!(
            saved_rules(&saved, Table::Nat, "POSTROUTING"),
            [
                "-m comment --comment \"cali:O3lYWMrLQYEMJtB5\" -j cali-POSTROUTING",
                "-m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING",
                "-s 172.17.0.0/16 ! -o docker0 -j MASQUERADE",
                "! -s 192.168.64.0/20 -d 192.168.66.0/24 -j RETURN",
                "-s 192.168.64.0/20 -d 192.168.64.0/20 -j RETURN",
                "-s 192.168.64.0/20 ! -d 224.0.0.0/4 -j MASQUERADE",
                "! -s 192.168.64.0/20 -d 192.168.64.0/24 -j RETURN",
                "! -s 192.168.64.0/20 -d 192.168.64.0/20 -j MASQUERADE",
            ],
            "{backend}"
        );
        assert_eq!(
            saved_rules(&saved, Table::Nat, "cali-nat-outgoing"),
            [
                "-m comment --comment \"cali:Wd76s91357Uv7N3v\" -m set --match-set \
                 cali4-masq-ipam-pools src -m set ! --match-set cali4-all-ipam-pools dst \
                 -j MASQUERADE"
            ],
            "{backend}"
        );
        assert!(saved_sets.contains("add cali4-masq-ipam-pools 192.168.64.0/20"));
    }
    check("all of S2", &sets, &scripts);
}

#[test]
fn ipset_every_set_type_restored_reads_back() {
    let mut script = IpsetScript::new();
    for (name, kind, entry) in [
        ("ip", SetType::HashIp, "10.0.0.1"),
        ("net", SetType::HashNet, "10.0.0.0/8"),
        ("ip-port", SetType::HashIpPort, "10.0.0.1,tcp:80"),
        (
            "ip-port-ip",
            SetType::HashIpPortIp,
            "10.0.0.1,tcp:80,10.0.0.2",
        ),
        (
            "ip-port-net",
            SetType::HashIpPortNet,
            "10.0.0.1,tcp:80,10.1.0.0/16",
        ),
        ("port", SetType::BitmapPort(0, 65535), "30080"),
    ] {
        let mut set = Set::new(kind, Family::V4).with_comments();
        set.add(entry);
        script.add_set(name, set).expect("the name is unused");
    }
    let mut six = Set::new(SetType::HashIpPort, Family::V6)
        .with_hashsize(1024)
        .with_maxelem(65536);
    six.add("fd00::1,udp:53");
    script.add_set("ip6-port", six).expect("the name is unused");

    let (_, saved) = restore_and_save("nft", &script, &[]);
    for line in script.to_string().lines() {
        let wanted = sorted_words(line);
        assert!(
            saved.lines().any(|found| {
                let found = sorted_words(found);
                wanted.iter().all(|word| found.contains(word))
            }),
            "{line}\n{saved}"
        );
    }
}
