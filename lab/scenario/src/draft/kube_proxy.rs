//! Finds the kube-proxy of a cluster: its configuration in a `ConfigMap`, as kubeadm writes it, and its
//! versions on the nodes.

use svclab_diagnostic::source::{Source, Sources};
use svclab_model::plan::Mode;
use svclab_rules::kube_proxy::Version;

use super::flow_style::scalar;
use crate::objects::Objects;
use crate::yaml;
use crate::yaml::tree::{Tree, Value, shorten};

/// Modes of kube-proxy that labs have.
const MODES: [&str; 3] = ["iptables", "ipvs", "nftables"];

/// kube-proxy of an imported lab.
#[derive(Debug)]
pub(super) struct ImportedProxy {
    /// Value of `kubeProxy`.
    pub lab: String,
    /// Value of `kubeProxy` for nodes with another version.
    pub others: Vec<(String, String)>,
    /// Whether the objects contain the configuration.
    pub is_configured: bool,
    /// Statements about what the lab does not have.
    pub notes: Vec<String>,
}

/// Returns the kube-proxy of a lab. A requested mode replaces that of the configuration.
pub(super) fn imported_proxy(objects: &Objects, requested: Option<Mode>) -> ImportedProxy {
    let configuration = objects.kube_proxy.as_deref().and_then(parse);
    let configuration = configuration.as_ref();
    let stated = configuration.and_then(|tree| field(tree, &["mode"]));
    let mut notes = Vec::new();
    if objects.kube_proxy.is_some() && configuration.is_none() {
        notes.push("not used: the ConfigMap kube-proxy: its config.conf is not YAML".to_owned());
    }
    if let Some(other) = stated.filter(|mode| !MODES.contains(mode)) {
        notes.push(format!(
            "not modelled: mode {} of the ConfigMap kube-proxy",
            shorten(other)
        ));
    }
    let mode = match (requested, stated) {
        (Some(mode), _) => mode,
        (None, Some("ipvs")) => Mode::Ipvs,
        (None, Some("nftables")) => Mode::Nftables,
        (None, _) => Mode::Iptables,
    };
    let mut fields = vec![format!("mode: {mode}")];
    if let Some(configuration) = configuration {
        fields.extend(configured_fields(configuration, mode));
    }
    let fields = fields.join(", ");
    let render = |version: Version| format!("{{version: {version}, {fields}}}");

    let versions = stated_versions(objects);
    let version = versions.iter().find_map(|(.., version)| *version);
    let version = version.unwrap_or(Version::NEWEST);
    let mut others = Vec::new();
    if versions.is_empty() {
        notes.push(format!(
            "no node states its version: the lab has kube-proxy {version}"
        ));
    }
    for (node, text, own) in versions {
        match own {
            Some(own) if own == version => {}
            // Older versions do not have this mode.
            Some(own) if mode != Mode::Nftables => others.push((node.to_owned(), render(own))),
            _ => notes.push(format!(
                "node {node} has version {text}, but kube-proxy {version} in the lab"
            )),
        }
    }
    ImportedProxy {
        lab: render(version),
        others,
        is_configured: configuration.is_some(),
        notes,
    }
}

/// Returns each node that states a version, with the text and the version if svclab supports it.
fn stated_versions(objects: &Objects) -> Vec<(&str, &str, Option<Version>)> {
    let stated = objects.nodes.iter().filter_map(|node| {
        let info = node.value.status.as_ref()?.node_info.as_ref()?;
        let text = info.kubelet_version.as_str();
        // Distributions append a suffix, such as `v1.30.4+k3s1`.
        let version = text.split(['+', '-']).next()?.parse().ok();
        (!text.is_empty()).then_some((node.name.as_str(), text, version))
    });
    stated.collect()
}

fn parse(text: &str) -> Option<Tree> {
    let sources = Sources::from(Source::from_text("config.conf", text));
    let (file, source) = sources.iter().next()?;
    yaml::parse(source, file).ok()?.into_iter().next()
}

/// Returns the text at a path. `None` if it is empty.
fn field<'t>(tree: &'t Tree, path: &[&str]) -> Option<&'t str> {
    let node = path.iter().try_fold(tree, |node, key| node.get(key))?;
    match &node.value {
        Value::Scalar(scalar) if !node.is_null() && !scalar.text.is_empty() => Some(&scalar.text),
        _ => None,
    }
}

/// Returns the fields of a `KubeProxyConfiguration` that differ from their defaults, as fields of a lab
/// (Kubernetes v1.36, `staging/src/k8s.io/kube-proxy/config/v1alpha1/types.go`).
fn configured_fields(configuration: &Tree, mode: Mode) -> Vec<String> {
    let of_mode = mode.to_string();
    // The mode ipvs uses these settings of iptables.
    let masquerade = if mode == Mode::Nftables {
        "nftables"
    } else {
        "iptables"
    };
    let scalars: [(&str, &[&str], &str); 13] = [
        ("clusterCIDR", &["clusterCIDR"], ""),
        ("detectLocalMode", &["detectLocalMode"], "ClusterCIDR"),
        ("bridgeInterface", &["detectLocal", "bridgeInterface"], ""),
        (
            "interfaceNamePrefix",
            &["detectLocal", "interfaceNamePrefix"],
            "",
        ),
        ("masqueradeAll", &[masquerade, "masqueradeAll"], "false"),
        ("masqueradeBit", &[masquerade, "masqueradeBit"], "14"),
        (
            "localhostNodePorts",
            &["iptables", "localhostNodePorts"],
            "true",
        ),
        ("tcpBeLiberal", &["conntrack", "tcpBeLiberal"], "false"),
        ("ipvsScheduler", &["ipvs", "scheduler"], "rr"),
        ("strictARP", &["ipvs", "strictARP"], "false"),
        ("tcpTimeout", &["ipvs", "tcpTimeout"], "0s"),
        ("tcpFinTimeout", &["ipvs", "tcpFinTimeout"], "0s"),
        ("udpTimeout", &["ipvs", "udpTimeout"], "0s"),
    ];
    let is_used = |path: &[&str]| match path {
        ["ipvs" | "iptables" | "nftables", _] => path[0] == of_mode || path[0] == masquerade,
        _ => true,
    };
    let mut fields: Vec<String> = scalars
        .into_iter()
        .filter(|(_, path, _)| is_used(path))
        .filter_map(|(name, path, default)| {
            let value = field(configuration, path).filter(|value| *value != default)?;
            let value = match value {
                "true" | "false" => value.to_owned(),
                number if number.bytes().all(|byte| byte.is_ascii_digit()) => number.to_owned(),
                text => scalar(text),
            };
            Some(format!("{name}: {value}"))
        })
        .collect();
    let addresses = configuration
        .get("nodePortAddresses")
        .and_then(Tree::as_sequence);
    let addresses: Vec<String> = addresses
        .into_iter()
        .flatten()
        .filter_map(|address| field(address, &[]).map(scalar))
        .collect();
    if !addresses.is_empty() {
        fields.push(format!("nodePortAddresses: [{}]", addresses.join(", ")));
    }
    fields
}
