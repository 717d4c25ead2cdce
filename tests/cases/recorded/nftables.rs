//! Compares the generated rulesets of nftables mode with recordings, as text and loaded with `nft`.

use libtest_mimic::{Failed, Trial};
use serde_json::json;
use svclab_rules::kube_proxy::{Family, KubeProxy, Mode, Version, nftables_rules};
use svclab_ruleset::nft;
use svclab_ruleset::nft::Ruleset;
use svclab_test_support::recordings::{self, Cluster, NftablesRecording};

use super::namespace::root_trial;
use super::{assert_no_differences, namespace};

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for recording in recordings::all_nftables() {
        let name = recording.name();
        let known = recording.clone();
        trials.push(Trial::test(format!("nftables::text::{name}"), move || {
            compare_text(&known)
        }));
        let name = format!("nftables::kernel::{name}");
        trials.push(root_trial(name, move || compare_in_kernel(&recording)));
    }
    for version in 29..=36 {
        for objects in ["everything", "e_all"] {
            let name = format!("nftables::loads::v1.{version}::{objects}");
            trials.push(root_trial(name, move || check_loads(version, objects)));
        }
    }
    trials
}

/// Returns the objects of a recording. The API server of the v1.36.2 recordings also served the
/// network of cluster IPs.
fn recorded_cluster(objects: &str) -> Result<Cluster, Failed> {
    let mut cluster = recordings::recorded_cluster(objects)?;
    cluster.service_cidrs = vec![serde_json::from_value(json!({
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": ["10.96.0.0/16"]}
    }))?];
    Ok(cluster)
}

/// Generates both tables of a kube-proxy.
fn generate(proxy: &KubeProxy, cluster: &Cluster) -> Result<Ruleset, Failed> {
    let objects = cluster.objects("node-a");
    let table = |family| nftables_rules(proxy, &objects, family);
    Ok(Ruleset {
        tables: vec![table(Family::V4)?, table(Family::V6)?],
    })
}

fn parse(text: &str) -> Result<Ruleset, Failed> {
    nft::parse(text).map_err(|problems| format!("{problems:?}").into())
}

/// Asserts that the generated ruleset equals the recorded one, and that parsing its text gives the
/// same ruleset.
fn compare_text(recording: &NftablesRecording) -> Result<(), Failed> {
    let cluster = recorded_cluster(&recording.objects)?;
    let written = generate(&recording.proxy()?, &cluster)?;
    assert_no_differences(&svclab_dump::compare::nft::compare(
        &parse(&recording.text()?)?,
        &written,
    ))?;
    assert_no_differences(&svclab_dump::compare::nft::compare(
        &written,
        &parse(&written.to_string())?,
    ))
}

fn compare_in_kernel(recording: &NftablesRecording) -> Result<(), Failed> {
    let cluster = recorded_cluster(&recording.objects)?;
    let written = generate(&recording.proxy()?, &cluster)?;
    let listed = namespace::load_nft(&written.to_string())?;
    let recorded = recording.text()?;
    assert_no_differences(&svclab_dump::compare::nft::compare(
        &parse(&recorded)?,
        &parse(&listed)?,
    ))?;
    // The same version of nft listed both.
    super::assert_same_lines(&one_entry_per_line(&recorded), &one_entry_per_line(&listed))
}

/// Returns the listing with one entry a line, because entries have arbitrary order.
fn one_entry_per_line(listing: &str) -> String {
    let mut lines = Vec::new();
    let mut is_in_elements = false;
    for line in listing.lines() {
        let line = line.trim();
        is_in_elements |= line.starts_with("elements = { ");
        if is_in_elements {
            let ends = line.ends_with(" }");
            let entries = line.trim_start_matches("elements = { ");
            let entries = entries.trim_end_matches(" }").trim_end_matches(',');
            lines.extend(entries.split(", ").map(str::to_owned));
            is_in_elements = !ends;
        } else {
            lines.push(line.to_owned());
        }
    }
    lines.join("\n")
}

/// Loads the rules of any version for a cluster with every kind of object, and compares what the
/// kernel lists.
fn check_loads(minor: u8, objects: &str) -> Result<(), Failed> {
    let cluster = recorded_cluster(objects)?;
    for node_port_addresses in [Vec::new(), vec!["0.0.0.0/0".to_owned()]] {
        let mut proxy = KubeProxy::new(Version::from_minor(minor)?);
        proxy.mode = Mode::Nftables;
        proxy.cluster_cidr = Some("10.244.0.0/16,fd00:10:244::/56".parse()?);
        proxy.masquerade_bit = 15;
        for ip in node_port_addresses {
            proxy.node_port_addresses.push(ip.try_into()?);
        }
        let written = generate(&proxy, &cluster)?;
        let listed = namespace::load_nft(&written.to_string());
        if minor == 29 && objects == "everything" {
            // The address of a load balancer is in its own source ranges. These are two overlapping
            // entries of an interval set, which every kernel rejects.
            let refused = listed
                .err()
                .and_then(|error| error.message().map(str::to_owned));
            let refused = refused.ok_or("the kernel accepted overlapping entries")?;
            if !refused.contains("203.0.113.7 . tcp . 80 . 203.0.113.7") {
                return Err(refused.into());
            }
            continue;
        }
        assert_no_differences(&svclab_dump::compare::nft::compare(
            &written,
            &parse(&listed?)?,
        ))?;
    }
    Ok(())
}
