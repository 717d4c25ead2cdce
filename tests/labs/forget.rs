//! A standing lab that forgets its connections forgets whom rules remembered, too, as
//! session affinity does in nftables mode.

use libtest_mimic::{Failed, Trial};
use svclab_runner::kernel::{KernelError, Session};
use svclab_runner::run::Prepared;

use super::stage;

/// A case whose node-a is called by a pod.
const CASE: &str = "service-paths/clusterCIDR=set,mode=nftables";

/// Remembers who comes by, in the words of kube-proxy's affinity.
const REMEMBERS: &str = "table ip clients {
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

/// The one trial.
pub fn trials(cases: &[Prepared]) -> Vec<Trial> {
    let prepared = cases.iter().find(|prepared| prepared.case.id == CASE);
    let prepared = prepared.expect("there is such a case").clone();
    let name = format!("forget/{CASE}");
    vec![Trial::test(name, move || forgets(&prepared))]
}

fn forgets(prepared: &Prepared) -> Result<(), Failed> {
    let mut plan = prepared.plan.clone();
    plan.probes.retain(|probe| probe.name == "podToLocal");
    for namespace in &mut plan.namespaces {
        if namespace.name == "node-a" {
            namespace.nft.push_str(REMEMBERS);
        }
    }
    let (met, forgotten) = stage::with_agent(async |agent| {
        let mut session = agent.build_standing(plan).await?;
        session.probe().await?;
        let met = listed(&mut session).await?;
        session.forget().await?;
        Ok((met, listed(&mut session).await?))
    })?;
    if !met.contains("10.244.1.9") {
        return Err(format!("it was not remembered: {met}").into());
    }
    if !forgotten.contains("set affinity-a") || forgotten.contains("10.244.1.9") {
        return Err(format!("it was not forgotten: {forgotten}").into());
    }
    Ok(())
}

async fn listed(session: &mut Session) -> Result<String, KernelError> {
    let command = ["list", "set", "ip", "clients", "affinity-a"];
    Ok(session.run("node-a", "nft", &command, "").await?.stdout)
}
