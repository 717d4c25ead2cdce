//! Loads rules and tables that exceed one message of a user namespace many times, and compares the
//! state of the kernel with the input.

use std::fmt::Write as _;

use svclab_dump::compare::iptables::{Order, compare};
use svclab_dump::compare::nft::compare as compare_nft;
use svclab_model::plan::{Backend, Iptables, Namespace, Plan};
use svclab_planner::delta::diff;
use svclab_rules::kube_proxy::{KubeProxy, Mode, nftables_rules, rules};
use svclab_ruleset::Family;
use svclab_ruleset::input::{Input, ProgramInput as _};
use svclab_ruleset::iptables::IptablesRules;
use svclab_ruleset::iptables::script::IptablesScript;
use svclab_ruleset::nft::{self, Ruleset};
use svclab_runner::kernel::{KernelError, Session};
use svclab_test_support::generated::cluster::Cluster;
use svclab_test_support::programs::with_agent;

/// Number of services with two endpoints for which kube-proxy writes more than 20,000 rules.
const SERVICES: usize = 2_500;

fn kube_proxy(mode: Mode) -> KubeProxy {
    KubeProxy {
        mode,
        cluster_cidr: Some("10.0.0.0/8".parse().expect("a network")),
        ..KubeProxy::new("v1.30".parse().expect("a version"))
    }
}

fn plan(namespace: Namespace) -> Plan {
    Plan {
        namespaces: vec![Namespace {
            name: "node-1".to_owned(),
            ..namespace
        }],
        ..Plan::default()
    }
}

fn plan_with_rules(backend: Backend, v4: Input<IptablesScript>) -> Plan {
    plan(Namespace {
        iptables: Some(Iptables {
            backend,
            v4,
            v6: Input::default(),
        }),
        ..Namespace::default()
    })
}

fn plan_with_tables(tables: &Ruleset) -> Plan {
    plan(Namespace {
        nft: tables.clone().into(),
        ..Namespace::default()
    })
}

/// Returns the output of a program on the node.
async fn output(
    session: &mut Session,
    program: &str,
    arguments: &[&str],
) -> Result<String, KernelError> {
    let output = session.run("node-1", program, arguments, "").await?;
    assert!(output.success, "{}", output.stderr);
    Ok(output.stdout)
}

/// Loads kube-proxy's iptables rules, and asserts that the kernel has them in their order.
fn assert_rules_load(backend: Backend) {
    let cluster = Cluster::new(SERVICES, 2);
    let generated = rules(&kube_proxy(Mode::Iptables), &cluster.objects(), Family::V4);
    let script = generated.expect("rules").script;
    let expected = IptablesRules::from_script(&script).expect("the rules are valid");
    let plan = plan_with_rules(backend, script.into());
    let program = format!("iptables-{}-save", backend.name());
    let saved = with_agent(async |agent| {
        let mut session = agent.build(plan).await?;
        let mut saved = String::new();
        // Without root, the legacy program cannot list the tables.
        for table in &expected.tables {
            saved += &output(&mut session, &program, &["-t", &table.table.to_string()]).await?;
        }
        session.remove().await?;
        Ok(saved)
    });
    let saved = IptablesRules::parse(&saved.expect("the rules load")).expect("valid output");
    let chains = saved.tables.iter().flat_map(|table| &table.chains);
    let count: usize = chains.map(|chain| chain.rules.len()).sum();
    assert!(count > 20_000, "{count}");
    assert_eq!(compare(&expected, &saved, Order::Strict), []);
}

#[test]
fn load_20000_rules_with_iptables_nft_gives_same_rules() {
    assert_rules_load(Backend::Nft);
}

#[test]
fn load_20000_rules_with_iptables_legacy_gives_same_rules() {
    assert_rules_load(Backend::Legacy);
}

fn kube_proxy_tables() -> Ruleset {
    let cluster = Cluster::new(SERVICES * 2, 2);
    let table = nftables_rules(&kube_proxy(Mode::Nftables), &cluster.objects(), Family::V4);
    Ruleset {
        tables: vec![table.expect("a table")],
    }
}

/// Loads kube-proxy's table, changes it and replaces it. Asserts that the kernel has each of them.
#[test]
fn load_20000_rules_of_nftables_gives_same_table() {
    let tables = kube_proxy_tables();
    let chains = &tables.tables[0].chains;
    let count: usize = chains.iter().map(|chain| chain.rules.len()).sum();
    assert!(count > 20_000, "{count}");
    let mut fewer = tables.clone();
    let table = &mut fewer.tables[0];
    table.chains.retain(|chain| !chain.name.contains("-7"));
    for chain in &mut table.chains {
        let refers = |rule: &nft::Rule| rule.text.contains("-7");
        chain.rules.retain(|rule| !refers(rule));
    }
    for set in &mut table.sets {
        set.elements
            .retain(|element| !element.to_string().contains("-7"));
    }
    let mut dormant = fewer.clone();
    dormant.tables[0].flags = Some("dormant".to_owned());
    let states = [tables, fewer, dormant];
    let listed = with_agent(async |agent| {
        let first = plan_with_tables(&states[0]);
        let mut session = agent.build_changeable(first.clone()).await?;
        let list = ["list", "ruleset"];
        let mut listed = vec![output(&mut session, "nft", &list).await?];
        let mut current = first;
        for state in [&states[1], &states[0], &states[2]] {
            let wanted = plan_with_tables(state);
            let delta = diff(&current, &wanted).expect("a change of the running lab");
            session.change(delta).await?;
            listed.push(output(&mut session, "nft", &list).await?);
            current = wanted;
        }
        session.remove().await?;
        Ok(listed)
    });
    let listed = listed.expect("the tables load");
    for (listed, index) in listed.iter().zip([0, 1, 0, 2]) {
        let listed = nft::parse(listed).expect("valid output");
        let differences = compare_nft(&states[index], &listed);
        assert_eq!(differences.len(), 0, "{:?}", differences.first());
    }
}

/// Rules of 2 KiB each exceed the estimate of the agent.
#[test]
fn load_rules_larger_than_estimate_are_divided() {
    let tests: Vec<String> = (0..8)
        .map(|n| format!("0x0>>0x16&0x3c@0x4=0x{n}"))
        .collect();
    let tests = tests.join("&&");
    let mut text = "*filter\n:FORWARD ACCEPT [0:0]\n:LARGE - [0:0]\n".to_owned();
    for n in 0..300 {
        let _ = writeln!(
            text,
            "-A LARGE -m u32 --u32 \"{tests}\" -m mark --mark {n:#x} -j DROP"
        );
    }
    text += "-A FORWARD -j LARGE\nCOMMIT\n";
    let expected = IptablesRules::parse(&text).expect("valid rules");
    for changeable in [false, true] {
        let plan = plan_with_rules(Backend::Nft, Input::from_text(text.as_str()));
        let saved = with_agent(async |agent| {
            let mut session = if changeable {
                agent.build_changeable(plan).await?
            } else {
                agent.build(plan).await?
            };
            let saved = output(&mut session, "iptables-nft-save", &[]).await?;
            session.remove().await?;
            Ok(saved)
        });
        let saved = IptablesRules::parse(&saved.expect("the rules load")).expect("valid output");
        assert_eq!(compare(&expected, &saved, Order::Strict), []);
    }
}

/// A rejected line has the same text and number as in an input that is not split.
#[test]
fn load_rejected_rule_of_large_input_is_named() {
    let mut lines: Vec<String> = (0..2_000)
        .map(|n| format!("-A FORWARD -m mark --mark {n:#x} -j ACCEPT"))
        .collect();
    lines[1_500] = "-A FORWARD -m mark --mark 0x5dc -j MASQUERADE".to_owned();
    let text = format!(
        "*filter\n:FORWARD ACCEPT [0:0]\n{}\nCOMMIT\n",
        lines.join("\n")
    );
    for changeable in [false, true] {
        let plan = plan_with_rules(Backend::Nft, Input::from_text(text.as_str()));
        let rejected = with_agent(async |agent| {
            let built = if changeable {
                agent.build_changeable(plan).await
            } else {
                agent.build(plan).await
            };
            match built {
                Err(KernelError::RequestFailed(failure)) => Ok(failure.rejected),
                Err(error) => Err(error),
                Ok(_) => Ok(None),
            }
        });
        let rejected = rejected.expect("an agent").expect("a rejected line");
        assert_eq!(rejected.line, lines[1_500]);
        assert_eq!(
            text.lines().nth(rejected.line_number - 1),
            Some(rejected.line.as_str())
        );
    }
    let rules: Vec<String> = (0..2_000)
        .map(|n| format!("\t\tmeta mark {n} accept\n"))
        .collect();
    let mut rules = rules.concat();
    rules += "\t\tmeta mark 7 jump missing\n";
    let tables = Ruleset::parse(&format!("table ip t {{\n\tchain a {{\n{rules}\t}}\n}}\n"));
    let plan = plan_with_tables(&tables.expect("a valid table"));
    let failure = with_agent(async |agent| match agent.build(plan).await {
        Err(KernelError::RequestFailed(failure)) => Ok(Some(failure)),
        Err(error) => Err(error),
        Ok(_) => Ok(None),
    });
    let failure = failure.expect("an agent").expect("a failure");
    assert!(
        failure.message.contains("meta mark 7 jump missing"),
        "{failure:?}"
    );
}
