//! Writes the rules that distribute connections over endpoints, and the chain of each endpoint.
//! (`writeServiceToEndpointRules` and the per-endpoint chains of kubernetes/kubernetes
//! `pkg/proxy/iptables/proxier.go`.)

use super::rule::Rule;
use super::{Context, chains, nat, nat_chain};
use crate::kube_proxy::endpoints::Endpoint;
use crate::kube_proxy::history::{
    COMMENTS_SPARED, FIVE_DIGIT_PROBABILITIES, LOST_COMMENTS, XLB_CHAINS,
};
use crate::kube_proxy::services::ServicePort;
use svclab_ruleset::iptables::script::Script;

/// Form of the comments on rules that lead to endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comments {
    /// Name of the service port, and from v1.24 on the endpoint.
    Usual,
    /// `Balancing rule 0 for …`, also in a large cluster.
    Numbered,
}

/// Writes rules to `chain` that distribute connections over `endpoints`: first the rules for client
/// affinity, then the rules for equal probabilities.
pub(super) fn spread(
    context: &Context<'_>,
    port: &ServicePort,
    chain: &str,
    endpoints: &[&Endpoint],
    comments: Comments,
    script: &mut Script,
) {
    stay(context, port, chain, endpoints, comments, script);
    balance(context, port, chain, endpoints, comments, script);
}

/// Writes the rules for client affinity, which send a client to the endpoint that it used last.
pub(super) fn stay(
    context: &Context<'_>,
    port: &ServicePort,
    chain: &str,
    endpoints: &[&Endpoint],
    comments: Comments,
    script: &mut Script,
) {
    let Some(seconds) = port.affinity_seconds else {
        return;
    };
    for endpoint in endpoints {
        let comment = match comments {
            Comments::Usual => comment(context, port, Some(endpoint)),
            Comments::Numbered => Some(port.name.clone()),
        };
        let own = chains::endpoint(port, endpoint);
        nat(
            script,
            commented(Rule::append(chain), comment)
                .with(format_args!(
                    "-m recent --name {own} --rcheck --seconds {seconds} --reap"
                ))
                .jump(&own),
        );
    }
}

/// Writes rules that give each endpoint the same probability: with `n` endpoints left, the first
/// rule matches with probability 1/n.
pub(super) fn balance(
    context: &Context<'_>,
    port: &ServicePort,
    chain: &str,
    endpoints: &[&Endpoint],
    comments: Comments,
    script: &mut Script,
) {
    for (i, endpoint) in endpoints.iter().enumerate() {
        let comment = match comments {
            Comments::Usual => comment(context, port, Some(endpoint)),
            Comments::Numbered => Some(format!("Balancing rule {i} for {}", port.name)),
        };
        let left = endpoints.len() - i;
        let chance = (left > 1).then(|| {
            format!(
                "-m statistic --mode random --probability {}",
                probability(context, left)
            )
        });
        nat(
            script,
            commented(Rule::append(chain), comment)
                .with_some(chance)
                .jump(&chains::endpoint(port, endpoint)),
        );
    }
}

/// Writes the endpoint's own chain: masquerades packets that the endpoint sends to itself, then
/// translates the destination.
pub(super) fn endpoint_chain(
    context: &Context<'_>,
    port: &ServicePort,
    endpoint: &Endpoint,
    script: &mut Script,
) {
    let chain = chains::endpoint(port, endpoint);
    let rule = || commented(Rule::append(&chain), comment(context, port, None));
    nat_chain(script, &chain);
    nat(
        script,
        rule()
            .with(format_args!("-s {}", endpoint.ip()))
            .jump(chains::MARK_MASQ),
    );
    let remember = port
        .affinity_seconds
        .map(|_| format!("-m recent --name {chain} --set"));
    nat(
        script,
        rule()
            .with_some(remember)
            .protocol(port.protocol)
            .jump(&format!("DNAT --to-destination {}", endpoint.address)),
    );
}

fn commented(rule: Rule, comment: Option<String>) -> Rule {
    match comment {
        Some(comment) => rule.comment(comment),
        None => rule,
    }
}

fn comment(
    context: &Context<'_>,
    port: &ServicePort,
    endpoint: Option<&Endpoint>,
) -> Option<String> {
    let spared = context.large_cluster && context.version.has(&COMMENTS_SPARED);
    if spared || context.version.has(&LOST_COMMENTS) {
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
    #[expect(clippy::cast_precision_loss, reason = "there are never 2^52 endpoints")]
    let chance = 1.0 / n as f64;
    if context.version.has(&FIVE_DIGIT_PROBABILITIES) {
        format!("{chance:.5}")
    } else {
        format!("{chance:.10}")
    }
}
