//! Compares svclab's model of kernel modules with records of real kernels in
//! `tests/recorded/modules`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use super::{MissingItem, MissingRequirements, ModuleLists, ModuleState, Modules};
use svclab_model::plan::{Backend, Iptables, Link, LinkKind, Mac, Namespace, Plan, PortSettings};
use svclab_planner::requirements::{Requester, Requirements};
use svclab_ruleset::input::Input;

const KERNELS: [(&str, &str); 2] = [
    ("debian-6.1-cloud", "6.1.0-50-cloud-amd64"),
    ("debian-6.12-cloud", "6.12.117+deb12-cloud-amd64"),
];

fn file(kernel: &str, name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/recorded/modules")
        .join(kernel)
        .join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the lists of a machine that has booted and loaded no module.
fn fresh(kernel: &str, release: &str, shows_lists: bool) -> ModuleLists {
    let list = |name| shows_lists.then(|| file(kernel, name));
    ModuleLists {
        release: release.to_owned(),
        loaded: Some(String::new()),
        dep: list("modules.dep"),
        alias: list("modules.alias"),
        builtin: list("modules.builtin"),
        ..ModuleLists::default()
    }
}

/// Returns each module with itself and all of its dependencies.
fn closures(kernel: &str) -> BTreeMap<String, BTreeSet<String>> {
    let name = |path: &str| {
        let file = path.rsplit('/').next().unwrap();
        file.split('.').next().unwrap().replace('-', "_")
    };
    file(kernel, "modules.dep")
        .lines()
        .map(|line| {
            let (module, others) = line.split_once(':').unwrap();
            let modules = others.split_whitespace().chain([module]).map(name);
            (name(module), modules.collect())
        })
        .collect()
}

/// Returns a namespace that makes a recorded request.
fn namespace(backend: Backend, kind: &str, family: &str, table: &str, subject: &str) -> Namespace {
    let mut namespace = Namespace::default();
    match kind {
        "set" => namespace.ipset = Input::from_text(format!("{subject}\n")),
        "rule" => {
            let rules = Input::from_text(format!("*{table}\n:X - [0:0]\n-A {subject}\nCOMMIT\n"));
            let (v4, v6) = if family == "6" {
                (Input::default(), rules)
            } else {
                (rules, Input::default())
            };
            namespace.iptables = Some(Iptables { backend, v4, v6 });
        }
        "link" => {
            let kind = match subject {
                "veth" => LinkKind::Veth {
                    namespace: String::new(),
                    peer: String::new(),
                },
                "bridge" => LinkKind::Bridge,
                "vxlan" => LinkKind::Vxlan {
                    vni: 1,
                    port: 4789,
                    dev: "veth0".to_owned(),
                    local: "10.0.0.1".parse().unwrap(),
                },
                other => panic!("{other}"),
            };
            namespace.links.push(Link {
                name: "x".to_owned(),
                kind,
                mac: Mac([2, 0, 0, 0, 0, 1]),
                addresses: vec![],
                bridge: None,
                port: PortSettings::default(),
                down: false,
                mtu: None,
            });
        }
        other => panic!("{other}"),
    }
    namespace
}

#[test]
fn requirements_equal_the_modules_that_kernels_load() {
    for (kernel, release) in KERNELS {
        let closures = closures(kernel);
        for backend in [Backend::Nft, Backend::Legacy] {
            // With the lists of the machine, and by naming conventions only.
            let modules = [
                Modules::new(&fresh(kernel, release, true)),
                Modules::new(&fresh(kernel, release, false)),
            ];
            let mut loaded = BTreeSet::new();
            let mut plan = Plan::default();
            let mut requests = 0;
            for line in file(kernel, &format!("loads.{}", backend.name())).lines() {
                let fields: Vec<&str> = line.split('\t').collect();
                let [kind, family, table, what, new] = fields[..] else {
                    panic!("{kernel}: {line}");
                };
                loaded.extend(new.split_whitespace().map(str::to_owned));
                plan.namespaces
                    .push(namespace(backend, kind, family, table, what));
                requests += 1;
                let needs = Requirements::from_plan(&plan);
                for modules in &modules {
                    if !modules.shows_lists() && release.starts_with("6.1.") {
                        // The ICMP match of kernel 6.1 is in another module than in later kernels.
                        continue;
                    }
                    let mut required = BTreeSet::new();
                    for (name, by) in needs.modules() {
                        match modules.state(name) {
                            ModuleState::Present => {}
                            ModuleState::Absent => {
                                panic!("{kernel}: no module for {name}, required for {by}")
                            }
                            ModuleState::Loadable(lacking) => {
                                for module in lacking {
                                    let with = closures.get(&module).unwrap_or_else(|| {
                                        panic!("{kernel}: no module {module}, required for {by}")
                                    });
                                    required.extend(with.iter().cloned());
                                }
                            }
                        }
                    }
                    assert_eq!(required, loaded, "{kernel}, {}: {line}", backend.name());
                }
            }
            assert!(requests > 50, "{kernel}: {requests} requests");
        }
    }
}

#[test]
fn modules_without_lists_have_same_states() {
    let (kernel, release) = KERNELS[1];
    let blind = Modules::new(&fresh(kernel, release, false));
    let seeing = Modules::new(&fresh(kernel, release, true));
    let mut names = 0;
    for line in file(kernel, "modules.alias").lines() {
        let Some(name) = line.split_whitespace().nth(1) else {
            continue;
        };
        let is_used = ["ipt_", "ip6t_", "ip_set_", "nft-chain-", "nf-logger-2-0"];
        let ours = is_used.iter().any(|start| name.starts_with(start));
        // Expressions of nftables for IPv4, IPv6 and all families only.
        let expression = name.strip_prefix("nft-expr-");
        let is_other_family = |rest: &str| ["1-", "5-", "7-"].iter().any(|of| rest.starts_with(of));
        let ours = ours || expression.is_some_and(|rest| !is_other_family(rest));
        if line.starts_with("alias") && ours {
            assert_eq!(blind.state(name), seeing.state(name), "{line}");
            names += 1;
        }
    }
    assert!(names > 180, "{names} names");
}

#[test]
fn missing_message_names_requester_and_help() {
    let (kernel, release) = KERNELS[1];
    let plan = Plan {
        namespaces: vec![
            Namespace {
                name: "node-1".to_owned(),
                ipset: Input::from_text("create s hash:ip,port\n"),
                iptables: Some(Iptables {
                    backend: Backend::Nft,
                    v4: Input::from_text(
                        "*filter\n-A FORWARD -m physdev --physdev-in eth0 -j DROP\n-A FORWARD -m nosuch -j DROP\nCOMMIT\n",
                    ),
                    v6: Input::default(),
                }),
                ..Namespace::default()
            },
            namespace(Backend::Nft, "link", "-", "-", "vxlan"),
        ],
        ..Plan::default()
    };
    let needs = Requirements::from_plan(&plan);
    let render = |shows_lists, has_program: bool| {
        let modules = Modules::new(&fresh(kernel, release, shows_lists));
        let missing =
            MissingRequirements::check(&needs, &modules, |_| has_program, || Ok(())).unwrap_err();
        format!("{missing}\n---\n{}", missing.remedy().unwrap())
    };
    insta::assert_snapshot!("lists_and_no_programs", render(true, false));
    insta::assert_snapshot!("no_lists", render(false, true));
}

#[test]
fn missing_all_loaded_returns_none() {
    let (kernel, release) = KERNELS[0];
    let mut lists = fresh(kernel, release, true);
    let mut plan = Plan::default();
    let needs = Requirements::from_plan(&plan);
    assert_eq!(
        MissingRequirements::check(&needs, &Modules::new(&lists), |_| false, || Ok(())),
        Ok(())
    );
    plan.namespaces = vec![namespace(Backend::Nft, "link", "-", "-", "vxlan")];
    let needs = Requirements::from_plan(&plan);
    let missing =
        MissingRequirements::check(&needs, &Modules::new(&lists), |_| true, || Ok(())).unwrap_err();
    assert_eq!(
        missing.modules,
        [MissingItem {
            name: "vxlan".to_owned(),
            requester: Requester {
                namespace: String::new(),
                object: "the interface `x`".to_owned()
            }
        }]
    );
    assert_eq!(missing.modprobe().as_deref(), Some("modprobe vxlan"));
    lists.loaded = Some("vxlan 131072 0 - Live 0x0\n".to_owned());
    assert_eq!(
        MissingRequirements::check(&needs, &Modules::new(&lists), |_| true, || Ok(())),
        Ok(())
    );
}
