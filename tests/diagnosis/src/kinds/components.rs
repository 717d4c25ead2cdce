//! Faults in flags of components, in the network between the nodes, and in load balancers.

use serde_json::{Value, json};

use super::{IPVS, Kind, kind};
use crate::fault::{Change, Culprit, Fault, Shown};
use crate::mode::Mode;

const AREA: &str = "components";

pub(super) const KINDS: [Kind; 14] = [
    kind("proxy-masquerade-all", AREA, Mode::ALL, |_| {
        Ok(lab(
            "kubeProxy",
            &["masqueradeAll", "masquerade-all"],
            &json!({"masqueradeAll": true}),
        )
        .in_rules(&["KUBE-MARK-MASQ", "mark-for-masquerade"]))
    }),
    kind("proxy-cluster-cidr-missing", AREA, Mode::ALL, |_| {
        Ok(cluster_cidr(&Value::Null))
    }),
    kind("proxy-cluster-cidr-wrong", AREA, Mode::ALL, |draw| {
        let wrong = format!("10.{}.0.0/16", 100 + draw.random.below(100));
        Ok(cluster_cidr(&json!(wrong)))
    }),
    kind("proxy-strict-arp", AREA, IPVS, |_| {
        Ok(lab(
            "kubeProxy",
            &["strictARP"],
            &json!({"strictARP": true}),
        ))
    }),
    kind("proxy-missing", AREA, Mode::ALL, |_| {
        Ok(patched(
            "Lab",
            &json!({"spec": {"kubeProxy": null}}),
            "kube-proxy is not installed",
            Culprit::field("kubeProxy", &["kubeProxy"]).or_exact(["runKubeProxy"]),
        )
        .in_rules(&["kube-proxy", "KUBE-SERVICES"]))
    }),
    kind("flannel-wrong-network", AREA, Mode::ALL, |draw| {
        let network = format!("10.{}.0.0/16", 100 + draw.random.below(100));
        Ok(lab(
            "flannel",
            &["network", "10.244.0.0/16"],
            &json!({"network": network}),
        ))
    }),
    kind("flannel-no-masquerade", AREA, Mode::ALL, |_| {
        Ok(lab(
            "flannel",
            &["ipMasq", "ip-masq"],
            &json!({"ipMasq": false}),
        ))
    }),
    kind("fabric-checks-sources", AREA, Mode::ALL, |_| {
        let culprit = Culprit::field("fabric", &["foreignSources", "foreign source*"]);
        let culprit = culprit.or_exact(["allowForeignSources"]);
        Ok(fabric(&json!({"foreignSources": "drop"}), culprit))
    }),
    kind("fabric-route-missing", AREA, Mode::ALL, |_| {
        let culprit = Culprit::field("fabric", &["routes", "203.0.113.64/26"]);
        // A route to the address of the failing probe is as good.
        let culprit = culprit.or_exact(["addFabricRoute 203.0.113.71*"]);
        let culprit = culprit.or_exact(["203.0.113.71*", "*fabric.routes"]);
        Ok(fabric(&json!({"routes": []}), culprit))
    }),
    kind("balancer-without-backend", AREA, Mode::ALL, |_| {
        Ok(balancer(&["backends"], &json!([])))
    }),
    kind("balancer-wrong-backend", AREA, Mode::ALL, |_| {
        Ok(balancer(&["backends"], &json!(["node-2"])))
    }),
    kind("balancer-own-source", AREA, Mode::ALL, |_| {
        Ok(balancer(&["keepSource"], &json!(false)))
    }),
    kind("balancer-security-group", AREA, Mode::ALL, |_| {
        Ok(balancer(
            &["securityGroup", "*SecurityGroup"],
            &json!({"allow": ["203.0.113.0/24"]}),
        ))
    }),
    kind("balancer-target-pods", AREA, Mode::ALL, |_| {
        Ok(balancer(&["target"], &json!("pods")))
    }),
];

/// Makes a fault of a patch.
pub(super) fn patched(document: &str, merge: &Value, summary: &str, culprit: Culprit) -> Fault {
    Fault {
        summary: summary.to_owned(),
        change: Change::Patches(vec![json!({"patch": document, "merge": merge})]),
        culprits: vec![culprit],
        shown: Shown::InDump,
    }
}

/// Changes fields of a component of the lab.
fn lab(component: &str, names: &[&str], fields: &Value) -> Fault {
    let merge = json!({"spec": {component: fields}});
    // A cure names the flag of the program.
    let program = match component {
        "kubeProxy" => "kube-proxy",
        _ => "flanneld",
    };
    let mut culprit = Culprit::field(component, names);
    for name in names {
        culprit = culprit.or_exact([program, &format!("*{name}")]);
    }
    patched("Lab", &merge, &format!("{component}: {fields}"), culprit)
}

/// Changes fields of the network between the nodes.
fn fabric(fields: &Value, culprit: Culprit) -> Fault {
    let merge = json!({"spec": {"fabric": fields}});
    patched("Lab", &merge, &format!("fabric: {fields}"), culprit).outside_dumps()
}

/// Changes the cluster CIDR of kube-proxy.
pub(super) fn cluster_cidr(value: &Value) -> Fault {
    let names = ["clusterCIDR", "cluster-cidr", "clusterCidr"];
    let fault = lab("kubeProxy", &names, &json!({"clusterCIDR": value}));
    fault.in_rules(&["10.244.0.0/16"])
}

/// Puts a load balancer with a wrong property in front of the service `front`. It checks health, because
/// in ipvs mode, a node without an endpoint forwards the requests to other nodes, despite
/// `externalTrafficPolicy: Local`. `names` has the property and other names of it in answers.
fn balancer(names: &[&str], value: &Value) -> Fault {
    let property = names[0];
    let merge = json!({"spec": {
        "fabric": {"routes": []},
        "loadBalancers": {"edge": {
            "service": "default/front",
            "healthCheck": {"every": "1s"},
            property: value,
        }},
    }});
    let culprit = Culprit::field("edge", names).or_exact(["edge", "backend*"]);
    patched(
        "Lab",
        &merge,
        &format!("load balancer edge: {property}: {value}"),
        culprit,
    )
    .outside_dumps()
}
