//! Writes the rules that distribute connections over endpoints, and the chain of each endpoint.
//! (`writeServiceToEndpointRules` and the per-endpoint chains of kubernetes/kubernetes
//! `pkg/proxy/iptables/proxier.go`.)

use super::rule::RuleBuilder;
use super::{Context, chains, nat, nat_chain};
use crate::kube_proxy::endpoints::Endpoint;
use crate::kube_proxy::history::{
    COMMENTS_OMITTED_IF_LARGE, FIVE_DIGIT_PROBABILITIES, LOST_COMMENTS, XLB_CHAINS,
};
use crate::kube_proxy::services::ServicePort;
use svclab_ruleset::iptables::script::IptablesScript;

/// Form of the comments on rules that lead to endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comments {
    /// Name of the service port, and from v1.24 on the endpoint.
    Standard,
    /// `Balancing rule 0 for …`, also in a large cluster.
    Numbered,
}

/// Writes rules to `chain` that distribute connections over `endpoints`: first the rules for client
/// affinity, then the rules for equal probabilities.
pub(super) fn write_endpoint_rules(
    context: &Context<'_>,
    port: &ServicePort,
    chain: &str,
    endpoints: &[&Endpoint],
    comments: Comments,
    script: &mut IptablesScript,
) {
    write_affinity_rules(context, port, chain, endpoints, comments, script);
    write_balance_rules(context, port, chain, endpoints, comments, script);
}

/// Writes the rules for client affinity, which send a client to the endpoint that it used last.
pub(super) fn write_affinity_rules(
    context: &Context<'_>,
    port: &ServicePort,
    chain: &str,
    endpoints: &[&Endpoint],
    comments: Comments,
    script: &mut IptablesScript,
) {
    let Some(seconds) = port.affinity_seconds else {
        return;
    };
    for endpoint in endpoints {
        let comment = match comments {
            Comments::Standard => endpoint_comment(context, port, Some(endpoint)),
            Comments::Numbered => Some(port.name.clone()),
        };
        let chain_name = chains::endpoint(port, endpoint);
        nat(
            script,
            with_comment(RuleBuilder::append(chain), comment)
                .with(format_args!(
                    "-m recent --name {chain_name} --rcheck --seconds {seconds} --reap"
                ))
                .jump(&chain_name),
        );
    }
}

/// Writes rules that give each endpoint the same probability: with `n` endpoints left, the first
/// rule matches with probability 1/n.
pub(super) fn write_balance_rules(
    context: &Context<'_>,
    port: &ServicePort,
    chain: &str,
    endpoints: &[&Endpoint],
    comments: Comments,
    script: &mut IptablesScript,
) {
    for (i, endpoint) in endpoints.iter().enumerate() {
        let comment = match comments {
            Comments::Standard => endpoint_comment(context, port, Some(endpoint)),
            Comments::Numbered => Some(format!("Balancing rule {i} for {}", port.name)),
        };
        let remaining = endpoints.len() - i;
        let chance = (remaining > 1).then(|| {
            format!(
                "-m statistic --mode random --probability {}",
                probability(context, remaining)
            )
        });
        nat(
            script,
            with_comment(RuleBuilder::append(chain), comment)
                .with_some(chance)
                .jump(&chains::endpoint(port, endpoint)),
        );
    }
}

/// Writes the endpoint's own chain: masquerades packets that the endpoint sends to itself, then
/// translates the destination.
pub(super) fn write_endpoint_chain(
    context: &Context<'_>,
    port: &ServicePort,
    endpoint: &Endpoint,
    script: &mut IptablesScript,
) {
    let chain = chains::endpoint(port, endpoint);
    let rule = || {
        with_comment(
            RuleBuilder::append(&chain),
            endpoint_comment(context, port, None),
        )
    };
    nat_chain(script, &chain);
    nat(
        script,
        rule()
            .with(format_args!("-s {}", endpoint.ip()))
            .jump(chains::MARK_MASQ),
    );
    let affinity_match = port
        .affinity_seconds
        .map(|_| format!("-m recent --name {chain} --set"));
    nat(
        script,
        rule()
            .with_some(affinity_match)
            .protocol(port.protocol)
            .jump(&format!("DNAT --to-destination {}", endpoint.address)),
    );
}

fn with_comment(rule: RuleBuilder, comment: Option<String>) -> RuleBuilder {
    match comment {
        Some(comment) => rule.comment(comment),
        None => rule,
    }
}

fn endpoint_comment(
    context: &Context<'_>,
    port: &ServicePort,
    endpoint: Option<&Endpoint>,
) -> Option<String> {
    let is_omitted = context.is_large_cluster && context.version.has(&COMMENTS_OMITTED_IF_LARGE);
    if is_omitted || context.version.has(&LOST_COMMENTS) {
        return None;
    }
    Some(match endpoint {
        Some(endpoint) if !context.version.has(&XLB_CHAINS) => {
            format!("{} -> {}", port.name, endpoint.address)
        }
        _ => port.name.clone(),
    })
}

/// Returns the probability 1/n with the number of digits that kube-proxy writes.
fn probability(context: &Context<'_>, n: usize) -> String {
    #[expect(
        clippy::cast_precision_loss,
        reason = "the number of endpoints is below 2^52"
    )]
    let chance = 1.0 / n as f64;
    if context.version.has(&FIVE_DIGIT_PROBABILITIES) {
        format!("{chance:.5}")
    } else {
        format!("{chance:.10}")
    }
}
