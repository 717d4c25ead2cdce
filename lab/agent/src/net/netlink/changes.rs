//! Changes the interfaces, addresses, routes and neighbours of a running lab over netlink.

use futures_util::TryStreamExt as _;
use ipnetwork::IpNetwork;
use nix::errno::Errno;
use rtnetlink::LinkUnspec;

use super::routes::route_message;
use super::{NamespaceNetlink, StepResult as _, errno, step_failure};
use crate::runtime::failure;
use svclab_model::plan::Namespace;
use svclab_model::plan::delta::{LinkChange, NamespaceDelta};
use svclab_model::protocol::Failure;

impl NamespaceNetlink {
    /// Changes interfaces and their addresses. `plan` is the namespace before the changes.
    pub(crate) async fn change_links(
        &self,
        plan: &Namespace,
        changes: &[LinkChange],
    ) -> Result<(), Failure> {
        for change in changes {
            let index = self.index(plan, &change.name)?;
            for address in &change.addresses.remove {
                let step = format_args!("remove address {address} from {}", change.name);
                let result = self.remove_address(index, address).await;
                result.in_step(&plan.name, step)?;
            }
            for address in &change.addresses.add {
                let handle = self.handle.address();
                let added = handle.add(index, address.ip(), address.prefix());
                let step = format_args!("add address {address} to {}", change.name);
                added.execute().await.in_step(&plan.name, step)?;
            }
            if let Some(settings) = change.port {
                self.set_port(plan, &change.name, index, settings).await?;
                self.flush_port(plan, &change.name, index).await?;
            }
            if change.mtu.is_some() || change.up.is_some() {
                let mut link = LinkUnspec::new_with_index(index);
                if let Some(mtu) = change.mtu {
                    link = link.mtu(mtu);
                }
                link = match change.up {
                    Some(true) => link.up(),
                    Some(false) => link.down(),
                    None => link,
                };
                let result = self.handle.link().set(link.build()).execute().await;
                let step = format_args!("change interface {}", change.name);
                result.in_step(&plan.name, step)?;
            }
            // Any of these requests enables a port.
            let mut links = plan.links.iter();
            let Some(link) = links.find(|link| link.name == change.name) else {
                continue;
            };
            let settings = change.port.unwrap_or(link.port);
            let is_up = change.up.unwrap_or(!link.down);
            let is_changed = change.port.is_some() || !settings.forwarding;
            if link.bridge.is_some() && is_up && is_changed {
                self.set_port_state(plan, &change.name, index, settings.forwarding)
                    .await?;
            }
        }
        Ok(())
    }

    /// Sets an interface down.
    pub(crate) async fn set_link_down(&self, plan: &Namespace, name: &str) -> Result<(), Failure> {
        let link = LinkUnspec::new_with_index(self.index(plan, name)?).down();
        let result = self.handle.link().set(link.build()).execute().await;
        result.in_step(&plan.name, format_args!("set {name} down"))
    }

    async fn remove_address(
        &self,
        index: u32,
        address: &IpNetwork,
    ) -> Result<(), rtnetlink::Error> {
        let mut addresses = self
            .handle
            .address()
            .get()
            .set_link_index_filter(index)
            .set_prefix_length_filter(address.prefix())
            .set_address_filter(address.ip())
            .execute();
        // The kernel may have removed the address together with another address.
        while let Some(found) = addresses.try_next().await? {
            self.handle.address().del(found).execute().await?;
        }
        Ok(())
    }

    /// Removes and adds routes, neighbours and forwarding entries.
    pub(crate) async fn change_routes(
        &self,
        plan: &Namespace,
        change: &NamespaceDelta,
    ) -> Result<(), Failure> {
        for route in &change.routes.remove {
            let index = self.output_interface(plan, route)?;
            let message = route_message(route, index).map_err(|error| {
                failure::bug(format!("cannot encode the route to {}: {error}", route.to))
            })?;
            match self.handle.route().del(message).execute().await {
                Ok(()) => {}
                // The kernel removed the route together with an address or its interface.
                Err(error) if errno(&error) == Errno::ESRCH => {}
                Err(error) => {
                    let step = format_args!("remove the route to {}", route.to);
                    return Err(step_failure(&plan.name, step, &error));
                }
            }
        }
        for neighbour in &change.neighbours.remove {
            let index = self.index(plan, &neighbour.dev)?;
            let mut message = self
                .handle
                .neighbours()
                .add(index, neighbour.address)
                .link_layer_address(&neighbour.mac.0);
            let deletion = self.handle.neighbours().del(message.message_mut().clone());
            match deletion.execute().await {
                Ok(()) => {}
                // The kernel removed the neighbour together with its interface.
                Err(error) if errno(&error) == Errno::ENOENT => {}
                Err(error) => {
                    let step = format_args!("remove the neighbour {}", neighbour.address);
                    return Err(step_failure(&plan.name, step, &error));
                }
            }
        }
        for entry in &change.forwarding.remove {
            let message = self.forwarding_message(plan, entry)?;
            let deletion = self.handle.neighbours().del(message);
            let step = format_args!("remove the forwarding entry {}", entry.mac);
            deletion.execute().await.in_step(&plan.name, step)?;
        }
        let new = Namespace {
            name: plan.name.clone(),
            routes: change.routes.add.clone(),
            neighbours: change.neighbours.add.clone(),
            forwarding: change.forwarding.add.clone(),
            ..Namespace::default()
        };
        self.add_routes(&new)
    }
}
