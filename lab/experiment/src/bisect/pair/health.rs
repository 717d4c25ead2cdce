//! Keeps health checks consistent with the virtual servers of a selection of differences.

use svclab_model::plan::{HealthCheck, Namespace};

/// Returns the check with the real servers that exist. A check without any has no effect.
pub(super) fn with_real_servers_of(
    namespaces: &[Namespace],
    check: &HealthCheck,
) -> Option<HealthCheck> {
    let mut namespaces = namespaces.iter();
    let balancer = namespaces.find(|namespace| namespace.name == check.namespace)?;
    let mut check = check.clone();
    check.real_servers.retain(|guarded| {
        let mut servers = balancer.ipvs.iter();
        let server = servers.find(|server| server.key == guarded.key);
        server.is_some_and(|server| {
            let mut real_servers = server.servers.iter();
            real_servers.any(|real| real.address == guarded.address)
        })
    });
    (!check.real_servers.is_empty()).then_some(check)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bisect::{DifferenceMask, Pair};
    use svclab_model::plan::Plan;
    use svclab_model::plan::health::{GuardedServer, HealthRequest};
    use svclab_ruleset::ipvs::{
        Forwarding, RealServer, SchedulerFlags, VirtualServer, VirtualServerKey,
    };

    /// The agent refuses a health check of a real server that does not exist.
    #[test]
    fn pair_health_checks_follow_their_real_servers() {
        let key = VirtualServerKey::FwMark {
            mark: 7,
            is_v6: false,
        };
        let backend = "10.0.0.9:80".parse().unwrap();
        let good = Plan {
            namespaces: vec![Namespace {
                name: "node-1".to_owned(),
                ..Namespace::default()
            }],
            ..Plan::default()
        };
        let mut bad = good.clone();
        bad.namespaces[0].ipvs.push(VirtualServer {
            key,
            scheduler: "rr".to_owned(),
            persistence: None,
            flags: SchedulerFlags::default(),
            servers: vec![RealServer {
                address: backend,
                method: Forwarding::default(),
                weight: 1,
            }],
        });
        bad.health.push(HealthCheck {
            namespace: "node-1".to_owned(),
            backend,
            bind: None,
            request: HealthRequest::Connect,
            interval: Duration::from_secs(1),
            real_servers: vec![GuardedServer {
                key,
                address: backend,
            }],
        });
        let pair = Pair::new(&good, &bad).unwrap();
        assert_eq!(pair.len(), 2);
        for chosen in [[false, false], [false, true], [true, false], [true, true]] {
            let plan = pair.plan(&DifferenceMask::from(chosen));
            let has_server = !plan.namespaces[0].ipvs.is_empty();
            assert!(plan.health.is_empty() || has_server, "{chosen:?}");
            assert_eq!(plan.health.len(), usize::from(chosen == [true, true]));
        }
    }
}
