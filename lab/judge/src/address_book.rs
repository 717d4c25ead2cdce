//! Resolves names to addresses and addresses to names in one case.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use svclab_model::plan::{Plan, Probe};
use svclab_planner::cluster::{Cluster, NameError, Reference};

/// Names and addresses of one case.
#[derive(Debug, Clone, Copy)]
pub struct AddressBook<'a> {
    cluster: &'a Cluster,
    plan: &'a Plan,
    probes: &'a [Probe],
}

impl<'a> AddressBook<'a> {
    /// Creates the address book of a cluster and of the interfaces in its plan.
    #[must_use]
    pub fn new(cluster: &'a Cluster, plan: &'a Plan) -> Self {
        Self {
            cluster,
            plan,
            probes: &[],
        }
    }

    /// Adds the probes of the stage. Conclusions need them to look up the route of a connection
    /// that the kernel refused before it sent a packet.
    #[must_use]
    pub const fn with_probes(self, probes: &'a [Probe]) -> Self {
        Self { probes, ..self }
    }

    /// Returns the probe of the stage with a name. `None` if the stage has no such probe.
    #[must_use]
    pub fn probe(&self, name: &str) -> Option<&'a Probe> {
        self.probes.iter().find(|probe| probe.name == name)
    }

    pub(crate) fn cluster(&self) -> &'a Cluster {
        self.cluster
    }

    pub(crate) fn plan(&self) -> &'a Plan {
        self.plan
    }

    /// Returns the addresses of a name. The name is a pod, node, host or service, an interface such
    /// as `node-1/flannel.1`, or an IP address.
    ///
    /// # Errors
    ///
    /// Fails if no object has the name, or if the name contains a port.
    pub fn addresses(&self, name: &str) -> Result<BTreeSet<IpAddr>, NameError> {
        if let Some(addresses) = self.interface_addresses(name) {
            return Ok(addresses);
        }
        let reference = Reference::parse(name)?;
        if reference.port.is_some() {
            return Err(NameError {
                message: format!("source `{name}` must not have a port"),
                help: None,
            });
        }
        Ok(self
            .cluster
            .addresses(&reference.name)?
            .into_iter()
            .collect())
    }

    fn interface_addresses(&self, name: &str) -> Option<BTreeSet<IpAddr>> {
        let (owner, dev) = name.rsplit_once('/')?;
        let netns = self
            .cluster
            .source_namespace(owner)
            .unwrap_or_else(|_| owner.to_owned());
        let link = self
            .plan
            .namespace(&netns)?
            .links
            .iter()
            .find(|link| link.name == dev)?;
        Some(link.addresses.iter().map(IpNetwork::ip).collect())
    }

    /// Returns the name of an address as users write it; the address itself if it has no name.
    #[must_use]
    pub fn name_of(&self, address: IpAddr) -> String {
        self.cluster
            .name_of(address)
            .or_else(|| self.interface_with_address(address))
            .unwrap_or_else(|| address.to_string())
    }

    fn interface_with_address(&self, address: IpAddr) -> Option<String> {
        self.plan.namespaces.iter().find_map(|namespace| {
            let link = namespace
                .links
                .iter()
                .find(|link| link.addresses.iter().any(|network| network.ip() == address))?;
            Some(format!("{}/{}", namespace.name, link.name))
        })
    }
}
