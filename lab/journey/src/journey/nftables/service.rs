//! Finds the Service of a rule match in kube-proxy's own nftables table.
//!
//! Chain names contain the service port. Entries of services without endpoints have the service
//! port as their comment (kubernetes/kubernetes `pkg/proxy/nftables/proxier.go` v1.29.1 to v1.36.2,
//! `servicePortChainNameBase`).

use svclab_model::plan::NFTABLES_TABLE as TABLE;
use svclab_ruleset::nft::Table;

/// Prefixes of the chain names that contain a service port.
const CHAIN_PREFIXES: [&str; 5] = ["service-", "local-", "external-", "firewall-", "endpoint-"];

/// Returns the service port, such as `ns1/nginx:http`. The sources are, in this order: the chain,
/// the target of the rule, the comment of a matching entry.
pub(crate) fn service(
    table: &Table,
    chain: &str,
    target: Option<&str>,
    entries: &[String],
) -> Option<String> {
    if table.name != TABLE {
        return None;
    }
    let from_entry = || {
        let mut comments = entries
            .iter()
            .filter_map(|entry| entry.split_once(" comment \""));
        let (_, comment) = comments.next()?;
        Some(comment.split('"').next()?.to_owned())
    };
    let from_target = || service_from_chain(target?);
    service_from_chain(chain)
        .or_else(from_target)
        .or_else(from_entry)
}

/// Parses the service port of a chain name: `service-JH563WHK-ns1/nginx/tcp/http` gives
/// `ns1/nginx:http`.
fn service_from_chain(chain: &str) -> Option<String> {
    let hashed = CHAIN_PREFIXES
        .iter()
        .find_map(|prefix| chain.strip_prefix(prefix))?;
    let (_, name) = hashed.split_once('-')?;
    let name = name.split("__").next()?;
    let mut parts = name.split('/');
    let (namespace, service) = (parts.next()?, parts.next()?);
    let (_, port) = (parts.next()?, parts.next()?);
    let colon = if port.is_empty() { "" } else { ":" };
    Some(format!("{namespace}/{service}{colon}{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_chain_or_entry_returns_service_port() {
        let table = Table {
            name: TABLE.to_owned(),
            ..Table::default()
        };
        let service_port = |chain: &str, target: Option<&str>, entry: &str| {
            service(&table, chain, target, &[entry.to_owned()])
        };
        let endpoint = "endpoint-5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80";
        assert_eq!(
            service_port(endpoint, None, "").as_deref(),
            Some("ns1/svc1:p80")
        );
        let port = "external-ULMVA6XW-ns1/svc1/tcp/";
        assert_eq!(
            service_port("services", Some(port), "").as_deref(),
            Some("ns1/svc1")
        );
        let entry = "no-endpoint-services 10.0.0.1 . tcp . 80 comment \"ns1/a:http\" : drop";
        assert_eq!(
            service_port("service-endpoints-check", Some("DROP"), entry).as_deref(),
            Some("ns1/a:http")
        );
        assert_eq!(service_port("services", None, ""), None);
        let other = Table::default();
        assert_eq!(service(&other, port, None, &[]), None);
    }
}
