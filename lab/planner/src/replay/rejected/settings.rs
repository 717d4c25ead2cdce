//! Removes rejected sysctls, routes, routing rules, addresses and virtual servers.

use super::RejectedRemover;
use crate::replay::report::OmittedItem;
use svclab_model::protocol::{IP_ROUTE, IP_RULE, RejectedInput};
use svclab_ruleset::tool::Format;

impl RejectedRemover<'_> {
    /// Removes the sysctls that a missing module provides.
    pub(super) fn remove_sysctls_with_prefix(&mut self, prefix: &str) {
        let required = self.namespace.sysctls.iter();
        let required = required.filter(|own| own.key.starts_with(prefix) && !own.optional);
        let mut lines = required.map(|own| format!("{}={}", own.key, own.value));
        let rejected = RejectedInput {
            line: lines.next().unwrap_or_default(),
            related_lines: lines.collect(),
            message: format!(": {}", self.reason),
            ..RejectedInput::default()
        };
        self.remove_sysctls(&rejected);
    }

    pub(super) fn remove_sysctls(&mut self, rejected: &RejectedInput) {
        let lines = std::iter::once(&rejected.line).chain(&rejected.related_lines);
        let first = rejected.message.rsplit_once(": ").map(|(_, why)| why);
        let reasons = first
            .into_iter()
            .chain(std::iter::repeat("the kernel rejects it"));
        for (line, reason) in lines.zip(reasons) {
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            let dumped = self.dump.sysctls.as_ref();
            let Some(setting) = dumped.and_then(|settings| settings.get(key)) else {
                continue;
            };
            self.namespace.sysctls.retain(|own| own.key != key);
            let location = self.location_of(Format::Sysctls, setting.line);
            let item = OmittedItem::new(location, format!("{key} = {value}"), reason)
                .with_effect("the sysctl keeps the value of the kernel");
            self.removed.push(item.with_count_word("sysctl"));
        }
    }

    /// Removes routes, routing rules or addresses whose text is the rejected line.
    pub(super) fn remove_routing(&mut self, rejected: &RejectedInput) {
        let line = &rejected.line;
        let namespace = &mut *self.namespace;
        let (mut format, mut line_number) = (None, 0);
        match rejected.program.as_str() {
            IP_ROUTE => {
                for (ip, dumped) in &self.dump.routes {
                    for route in dumped {
                        let is_it = crate::replay::routes::plan_route(namespace, self.dump, route)
                            .is_ok_and(|planned| {
                                planned.is_some_and(|one| one.to_string() == *line)
                            });
                        if is_it {
                            (format, line_number) = (Some(Format::Routes(*ip)), route.line);
                        }
                    }
                }
                if format.is_some() {
                    namespace.routes.retain(|route| route.to_string() != *line);
                    namespace
                        .multipath_routes
                        .retain(|route| route.to_string() != *line);
                }
            }
            IP_RULE => {
                for (ip, dumped) in &self.dump.routing_rules {
                    for rule in dumped {
                        let is_it =
                            crate::replay::routes::rules::plan_routing_rule(*ip, rule, self.dump)
                                .is_ok_and(|planned| planned.to_string() == *line);
                        if is_it {
                            (format, line_number) = (Some(Format::RoutingRules(*ip)), rule.line);
                        }
                    }
                }
                if format.is_some() {
                    namespace
                        .routing_rules
                        .retain(|rule| rule.to_string() != *line);
                }
            }
            _ => {
                let (address, dev) = line.split_once(" dev ").unwrap_or((line, ""));
                let dumped = self.dump.links.as_ref();
                let dumped = dumped.and_then(|links| links.get(dev));
                let addresses = dumped.into_iter().flat_map(|link| &link.addresses);
                for own in addresses.filter(|own| own.network.to_string() == address) {
                    (format, line_number) = (Some(Format::Links), own.line);
                }
                if format.is_some() {
                    let mut links = namespace.links.iter_mut();
                    if let Some(link) = links.find(|link| link.name == dev) {
                        link.addresses.retain(|own| own.to_string() != address);
                    }
                    if dev == "lo" {
                        let all = &mut namespace.loopback;
                        all.retain(|own| own.to_string() != address);
                    }
                }
            }
        }
        if let Some(format) = format {
            let location = self.location_of(format, line_number);
            let counted_as = match rejected.program.as_str() {
                IP_ROUTE => "route",
                IP_RULE => "routing",
                _ => "address",
            };
            self.add_removed(
                location,
                format!("{} `{line}`", rejected.program),
                counted_as,
            );
        }
    }

    pub(super) fn remove_servers_where(
        &mut self,
        is_removed: impl Fn(&svclab_model::plan::VirtualServer) -> bool,
    ) {
        let Some(dumped) = &self.dump.servers else {
            return;
        };
        let (removed, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.namespace.ipvs)
            .into_iter()
            .partition(is_removed);
        self.namespace.ipvs = kept;
        for server in removed {
            let line = dumped.get(&server.key).map_or(0, |server| server.line);
            let location = self.location_of(Format::VirtualServers, line);
            let description = format!("virtual server {}, {}", server.key, server.scheduler);
            self.add_removed(location, description, "server");
        }
    }
}
