//! Changes a running lab from one plan to another.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::lab::{RunningLab, begin};
use crate::net::netfilter::{accounting, conntrack, recent};
use crate::net::netlink::{self, NamespaceNetlink};
use crate::net::{ipvs, sysctl};
use crate::rules;
use crate::rules::loader::load;
use crate::runtime::failure;
use crate::servers::server;
use svclab_model::plan::delta::{NamespaceDelta, RulesChange, SetsChange};
use svclab_model::plan::{Delta, Iptables, Namespace};
use svclab_model::protocol::{BackendHealthChange, Failure};
use svclab_model::tools::iptables_program;
use svclab_ruleset::input::Input;

impl RunningLab {
    /// Changes the lab to another plan. After an error, the lab is unusable.
    ///
    /// # Errors
    ///
    /// When the kernel or a program rejects a change, or when the lab lacks an object that the
    /// change names.
    pub(crate) async fn apply_delta(
        &mut self,
        delta: Delta,
        step: &impl Fn(String),
        on_health_change: &Rc<dyn Fn(BackendHealthChange)>,
    ) -> Result<(), Failure> {
        if delta.health.is_some() {
            self.health_checks.shutdown().await;
        }
        // Interfaces go down first, so that peers behind them do not notice that servers stop.
        for change in &delta.namespaces {
            let (index, wire) = self.find_namespace(&change.namespace)?;
            let down = change.links.iter().filter(|link| link.up == Some(false));
            for link in down {
                wire.set_link_down(&self.plan.namespaces[index], &link.name)
                    .await?;
            }
        }
        for stopped in &delta.stop {
            begin(step, format!("stop {}", stopped.name)).await;
            let index = self
                .servers
                .iter()
                .position(|(server, _)| server == stopped);
            let Some(at) = index else {
                return Err(failure::bug(format!(
                    "cannot stop {}: the lab has no such server",
                    stopped.name
                )));
            };
            self.servers.remove(at).1.shutdown().await;
        }
        begin(step, "apply changes to its namespaces").await;
        let mut links = delta.namespaces.iter().flat_map(|change| &change.links);
        // A bridge starts to carry packets after its ports.
        let needs_wait = links.any(|link| {
            link.up == Some(true) || link.port.is_some() || !link.addresses.add.is_empty()
        });
        for change in delta.namespaces {
            self.apply_namespace_delta(change).await?;
        }
        if needs_wait {
            let namespaces = &self.plan.namespaces;
            let descriptors = namespaces.iter().map(|plan| &self.namespaces[&plan.name]);
            netlink::wait_until_ready(descriptors.zip(&self.netlinks), namespaces).await?;
        }
        for server in delta.start {
            begin(step, format!("start {}", server.name)).await;
            let tasks = server::open_for_plan(&self.plan, &self.namespaces, &server)?;
            self.servers.push((server, tasks));
        }
        if let Some(checks) = delta.health {
            self.plan.health = checks;
            self.start_health_checks(step, on_health_change).await?;
        }
        if let Some(stages) = delta.stages {
            self.plan.stages = stages;
        }
        if let Some(watch) = delta.evidence {
            self.plan.evidence = watch;
        }
        Ok(())
    }

    /// Resets the state of the lab: conntrack entries, client affinity, the round robin of IPVS,
    /// and the counters of the rules that are read back.
    pub(crate) async fn reset_state(
        &mut self,
        step: &impl Fn(String),
        on_health_change: &Rc<dyn Fn(BackendHealthChange)>,
    ) -> Result<(), Failure> {
        begin(step, "reset its connection state").await;
        for (name, ns) in &self.namespaces {
            conntrack::delete_all(ns, name)?;
            recent::delete_all(ns, name)?;
        }
        for namespace in &self.plan.namespaces {
            let ns = &self.namespaces[&namespace.name];
            rules::flush_affinity(ns, &namespace.name, &namespace.nft).await?;
        }
        let watched: BTreeSet<&String> = self.plan.evidence.rules.iter().collect();
        for namespace in &self.plan.namespaces {
            if !watched.contains(&namespace.name) {
                continue;
            }
            let ns = &self.namespaces[&namespace.name];
            for rules in namespace.iptables_rules() {
                for (ip, input) in [(4, &rules.v4), (6, &rules.v6)] {
                    let tables = rules::table_names(input.text());
                    let batch: String = tables
                        .flat_map(|table| ["*", table, "\n-Z\nCOMMIT\n"])
                        .collect();
                    let program = iptables_program(ip, rules.backend, "restore");
                    load(&mut self.loaders, ns, &namespace.name, program, &batch).await?;
                }
            }
        }
        let balanced: Vec<&Namespace> = self
            .plan
            .namespaces
            .iter()
            .filter(|namespace| !namespace.ipvs.is_empty())
            .collect();
        if !balanced.is_empty() {
            self.health_checks.shutdown().await;
            for namespace in balanced {
                let ns = &self.namespaces[&namespace.name];
                ipvs::remove(ns, &namespace.name, &namespace.ipvs)?;
                ipvs::add(ns, namespace)?;
            }
            self.start_health_checks(step, on_health_change).await?;
        }
        Ok(())
    }

    /// Returns the index of a namespace in the plan, and its netlink connection.
    fn find_namespace(&self, name: &str) -> Result<(usize, &NamespaceNetlink), Failure> {
        let namespaces = self.plan.namespaces.iter();
        let indexed = namespaces.zip(&self.netlinks).enumerate();
        indexed
            .into_iter()
            .find(|(_, (namespace, _))| namespace.name == name)
            .map(|(at, (_, wire))| (at, wire))
            .ok_or_else(|| {
                failure::bug(format!(
                    "cannot change {name}: the lab has no such namespace"
                ))
            })
    }

    async fn apply_namespace_delta(&mut self, change: NamespaceDelta) -> Result<(), Failure> {
        let (index, _) = self.find_namespace(&change.namespace)?;
        let (plan, wire) = (&mut self.plan.namespaces[index], &self.netlinks[index]);
        let name = change.namespace.clone();
        let ns = &self.namespaces[&name];
        sysctl::write(ns, &name, change.sysctls.iter())?;
        wire.change_links(plan, &change.links).await?;
        wire.change_routes(plan, &change).await?;
        update_links(plan, &change);
        if !change.ipvs.is_empty() {
            ipvs::remove(ns, &name, &change.ipvs.remove)?;
            plan.ipvs
                .retain(|server| !change.ipvs.remove.contains(server));
            let new = Namespace {
                name: name.clone(),
                ipvs: change.ipvs.add.clone(),
                ..Namespace::default()
            };
            ipvs::add(ns, &new)?;
            plan.ipvs.extend(change.ipvs.add);
        }
        let ipset = || "ipset".to_owned();
        let sets = change.sets.unwrap_or_default();
        load(&mut self.loaders, ns, &name, ipset(), &sets.before_rules()).await?;
        // The kernel frees the object of a deleted rule with a delay and rejects its deletion until
        // then. Therefore existing objects are kept and reused.
        let mut objects = change.accounting;
        objects.retain(|name| !plan.accounting.contains(name));
        accounting::create(ns, &name, &objects)?;
        plan.accounting.extend(objects);
        for (rules, planned) in [
            (change.iptables, &mut plan.iptables),
            (change.other_iptables, &mut plan.other_iptables),
        ] {
            let Some(rules) = rules else {
                continue;
            };
            for (ip, batch) in [(4, &rules.batches.v4), (6, &rules.batches.v6)] {
                let program = iptables_program(ip, rules.batches.backend, "restore");
                load(&mut self.loaders, ns, &name, program, batch.text()).await?;
            }
            *planned = Some(table_headings(&rules));
        }
        if let Some(change) = change.nft {
            rules::change_tables(ns, &name, &change).await?;
            plan.nft = change.tables;
        }
        load(&mut self.loaders, ns, &name, ipset(), &sets.after_rules()).await?;
        if sets != SetsChange::default() {
            // The agent only needs to know whether there are sets.
            plan.ipset = Input::from_text(if sets.has_sets { "\n" } else { "" });
        }
        Ok(())
    }
}

/// Returns the table headings that the plan keeps of changed rules.
fn table_headings(rules: &RulesChange) -> Iptables {
    let headings_of_family = |family: u8| {
        let tables = rules.tables.iter().filter(|(of, _)| *of == family);
        let headings = tables
            .flat_map(|(_, tables)| tables)
            .flat_map(|table| ["*", table, "\nCOMMIT\n"]);
        Input::from_text(headings.collect::<String>())
    };
    Iptables {
        backend: rules.batches.backend,
        v4: headings_of_family(4),
        v6: headings_of_family(6),
    }
}

fn update_links(plan: &mut Namespace, change: &NamespaceDelta) {
    for changed in &change.links {
        let mut links = plan.links.iter_mut();
        if let Some(link) = links.find(|link| link.name == changed.name) {
            link.down = changed.up.map_or(link.down, |up| !up);
            let Some(swap) = Some(&changed.addresses).filter(|swap| !swap.is_empty()) else {
                continue;
            };
            link.addresses
                .retain(|address| !swap.remove.contains(address));
            link.addresses.extend(&swap.add);
        }
    }
}
