//! Compares the generated rulesets of nftables mode with recordings, as text and loaded with `nft`.

use libtest_mimic::{Failed, Trial};
use serde_json::json;
use svclab_rules::kube_proxy::{Family, KubeProxy, Mode, Version, nftables_rules};
use svclab_ruleset::nft;
use svclab_ruleset::nft::Ruleset;

use crate::recordings::{self, Cluster, NftablesRecording};
use crate::{namespace, none};

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for recording in recordings::all_nftables() {
        let name = recording.name();
        let known = recording.clone();
        trials.push(Trial::test(format!("nftables::text::{name}"), move || {
            text(&known)
        }));
        trials.push(Trial::test(
            format!("nftables::kernel::{name}"),
            move || kernel(&recording),
        ));
    }
    for version in 29..=36 {
        for objects in ["everything", "e_all"] {
            let name = format!("nftables::loads::v1.{version}::{objects}");
            trials.push(Trial::test(name, move || loads(version, objects)));
        }
    }
    trials
}

/// Returns the objects of a recording. The API server of the v1.36.2 recordings also served the
/// network of cluster IPs.
fn cluster(objects: &str) -> Result<Cluster, Failed> {
    let mut cluster = recordings::recorded_cluster(objects)?;
    cluster.service_cidrs = vec![serde_json::from_value(json!({
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": ["10.96.0.0/16"]}
    }))?];
    Ok(cluster)
}

/// Generates both tables of a kube-proxy.
fn written(proxy: &KubeProxy, cluster: &Cluster) -> Result<Ruleset, Failed> {
    let objects = cluster.objects("node-a");
    let table = |family| nftables_rules(proxy, &objects, family);
    Ok(Ruleset {
        tables: vec![table(Family::V4)?, table(Family::V6)?],
    })
}

fn parsed(text: &str) -> Result<Ruleset, Failed> {
    nft::parse(text).map_err(|problems| format!("{problems:?}").into())
}

/// Asserts that the generated ruleset equals the recorded one, and that parsing its text gives the
/// same ruleset.
fn text(recording: &NftablesRecording) -> Result<(), Failed> {
    let cluster = cluster(&recording.objects)?;
    let written = written(&recording.proxy()?, &cluster)?;
    none(&svclab_dump::compare::nft::compare(
        &parsed(&recording.text()?)?,
        &written,
    ))?;
    none(&svclab_dump::compare::nft::compare(
        &written,
        &parsed(&written.to_string())?,
    ))
}

fn kernel(recording: &NftablesRecording) -> Result<(), Failed> {
    let cluster = cluster(&recording.objects)?;
    let written = written(&recording.proxy()?, &cluster)?;
    let listed = namespace::load_nft(&written.to_string())?;
    let recorded = recording.text()?;
    none(&svclab_dump::compare::nft::compare(
        &parsed(&recorded)?,
        &parsed(&listed)?,
    ))?;
    // The same version of nft listed both.
    crate::same_lines(&lines(&recorded), &lines(&listed))
}

/// Returns the listing with one entry a line, because entries have arbitrary order.
fn lines(listing: &str) -> String {
    let mut lines = Vec::new();
    let mut within = false;
    for line in listing.lines() {
        let line = line.trim();
        within |= line.starts_with("elements = { ");
        if within {
            let ends = line.ends_with(" }");
            let entries = line.trim_start_matches("elements = { ");
            let entries = entries.trim_end_matches(" }").trim_end_matches(',');
            lines.extend(entries.split(", ").map(str::to_owned));
            within = !ends;
        } else {
            lines.push(line.to_owned());
        }
    }
    lines.join("\n")
}

/// Loads the rules of any version for a cluster with every kind of object, and compares what the
/// kernel lists.
fn loads(minor: u8, objects: &str) -> Result<(), Failed> {
    let cluster = cluster(objects)?;
    for ips in [Vec::new(), vec!["0.0.0.0/0".to_owned()]] {
        let mut proxy = KubeProxy::new(Version::minor(minor)?);
        proxy.mode = Mode::Nftables;
        proxy.cluster_cidr = Some("10.244.0.0/16,fd00:10:244::/56".parse()?);
        proxy.masquerade_bit = 15;
        for ip in ips {
            proxy.node_port_addresses.push(ip.try_into()?);
        }
        let written = written(&proxy, &cluster)?;
        let listed = namespace::load_nft(&written.to_string());
        if minor == 29 && objects == "everything" {
            // The address of a load balancer is in its own source ranges. These are two overlapping
            // entries of an interval set, which every kernel rejects.
            let refused = listed
                .err()
                .and_then(|error| error.message().map(str::to_owned));
            let refused = refused.ok_or("the kernel takes entries that overlap")?;
            if !refused.contains("203.0.113.7 . tcp . 80 . 203.0.113.7") {
                return Err(refused.into());
            }
            continue;
        }
        none(&svclab_dump::compare::nft::compare(
            &written,
            &parsed(&listed?)?,
        ))?;
    }
    Ok(())
}
