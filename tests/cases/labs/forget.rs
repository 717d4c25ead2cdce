//! Tests that resetting the connection state of a running lab also deletes dynamic set entries,
//! such as those of session affinity in nftables mode.

use libtest_mimic::{Failed, Trial};
use svclab_runner::kernel::{KernelError, Session};
use svclab_runner::run::Prepared;
use svclab_test_support::append_text;
use svclab_test_support::programs::with_agent;

/// A case with a probe from a pod to node-a.
const CASE: &str = "service-paths/clusterCIDR=set,mode=nftables";

/// A table that records sources in a set, like kube-proxy's session affinity.
const AFFINITY_TABLE: &str = "table ip clients {
	set affinity-a {
		type ipv4_addr
		size 65535
		flags dynamic,timeout
		timeout 3h
	}

	chain remember {
		type filter hook prerouting priority 0; policy accept;
		ip saddr 10.244.1.9 update @affinity-a { ip saddr }
	}
}
";

pub fn trials(cases: &[Prepared]) -> Vec<Trial> {
    let prepared = cases.iter().find(|prepared| prepared.case.id == CASE);
    let prepared = prepared.expect("the case exists").clone();
    let name = format!("forget/{CASE}");
    vec![Trial::test(name, move || check_reset(&prepared))]
}

fn check_reset(prepared: &Prepared) -> Result<(), Failed> {
    let mut plan = prepared.plan.clone();
    plan.stages[0]
        .probes
        .retain(|probe| probe.name == "podToLocal");
    for namespace in &mut plan.namespaces {
        if namespace.name == "node-a" {
            append_text(&mut namespace.nft, AFFINITY_TABLE);
        }
    }
    let (recorded, after_reset) = with_agent(async |agent| {
        let mut session = agent.build_changeable(plan).await?;
        session.probe().await?;
        let met = list_set(&mut session).await?;
        session.reset_connections().await?;
        Ok((met, list_set(&mut session).await?))
    })?;
    if !recorded.contains("10.244.1.9") {
        return Err(format!("the set has no entry: {recorded}").into());
    }
    if !after_reset.contains("set affinity-a") || after_reset.contains("10.244.1.9") {
        return Err(format!("the set was not reset: {after_reset}").into());
    }
    Ok(())
}

async fn list_set(session: &mut Session) -> Result<String, KernelError> {
    let command = ["list", "set", "ip", "clients", "affinity-a"];
    Ok(session.run("node-a", "nft", &command, "").await?.stdout)
}
