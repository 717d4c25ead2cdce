//! Creates interfaces, connects them, and adds their addresses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use ipnetwork::IpNetwork;
use netlink_packet_core::DefaultNla;
use netlink_packet_route::link::{
    BridgePortState, InfoBridgePort, InfoData, InfoVeth, LinkAttribute, LinkMessage,
    LinkProtoInfoBridge,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;
use rtnetlink::{
    LinkBridge, LinkBridgePort, LinkDummy, LinkMessageBuilder, LinkUnspec, LinkVeth, LinkVxlan,
};
use tokio::task::yield_now;

use super::batch::{Batch, CREATE};
use super::{LOOPBACK, NamespaceNetlink, StepResult as _, errno, set_up, step_failure};
use crate::net::netns::NetNs;
use crate::runtime::failure;
use svclab_model::plan::{Link, LinkKind, Namespace, PortSettings};
use svclab_model::protocol::{Failure, IP_ADDR};

/// Attribute of a bridge port (Linux v6.12, `include/uapi/linux/if_link.h`).
const IFLA_BRPORT_STATE: u16 = 1;

impl NamespaceNetlink {
    /// Attaches ports to their bridges, adds addresses, and brings all interfaces up.
    pub(crate) fn bring_up(&self, plan: &Namespace) -> Result<(), Failure> {
        let mut batch = Batch::new(self);
        for link in &plan.links {
            let index = self.index(plan, &link.name)?;
            if let Some(bridge) = &link.bridge {
                self.attach_to_bridge(&mut batch, plan, link, bridge)?;
            }
            self.add_addresses(&mut batch, plan, &link.addresses, index, &link.name);
        }
        self.add_addresses(&mut batch, plan, &plan.loopback, LOOPBACK, "lo");
        for link in &plan.links {
            let Some(mtu) = link.mtu.filter(|mtu| Some(*mtu) != created_mtu(plan, link)) else {
                continue;
            };
            let index = self.index(plan, &link.name)?;
            let request = LinkUnspec::new_with_index(index).mtu(mtu).build();
            batch.push(RouteNetlinkMessage::SetLink(request), 0, move |error| {
                let step = format_args!("set the MTU of {} to {mtu}", link.name);
                step_failure(&plan.name, step, &error)
            });
        }
        for link in plan.links.iter().filter(|link| !link.down) {
            let index = self.index(plan, &link.name)?;
            batch.push(set_up(index), 0, |error| {
                step_failure(&plan.name, format_args!("bring up {}", link.name), &error)
            });
        }
        batch.send()
    }

    fn attach_to_bridge<'n>(
        &self,
        batch: &mut Batch<'n>,
        plan: &'n Namespace,
        link: &'n Link,
        bridge: &'n str,
    ) -> Result<(), Failure> {
        let index = self.index(plan, &link.name)?;
        let controller = self.index(plan, bridge)?;
        let port = LinkUnspec::new_with_index(index).controller(controller);
        batch.push(
            RouteNetlinkMessage::SetLink(port.build()),
            0,
            move |error| {
                let step = format_args!("attach {} to bridge {bridge}", link.name);
                step_failure(&plan.name, step, &error)
            },
        );
        let settings = link.port.without_state();
        if !settings.is_default() {
            let port = port_message(index, settings);
            batch.push(RouteNetlinkMessage::NewLink(port), 0, move |error| {
                let step = format_args!("set{settings} on bridge port {}", link.name);
                step_failure(&plan.name, step, &error)
            });
        }
        Ok(())
    }

    /// Disables the bridge ports that do not forward. The kernel enables a port when its interface
    /// comes up (Linux v6.12, `net/bridge/br_if.c`, `br_port_carrier_check`).
    pub(crate) fn disable_ports(&self, plan: &Namespace) -> Result<(), Failure> {
        let mut batch = Batch::new(self);
        for link in plan.links.iter().filter(|link| link.is_disabled_port()) {
            let message = state_message(self.index(plan, &link.name)?, false);
            batch.push(RouteNetlinkMessage::SetLink(message), 0, move |error| {
                let step = format_args!("disable bridge port {}", link.name);
                step_failure(&plan.name, step, &error)
            });
        }
        batch.send()
    }

    /// Enables or disables a bridge port whose interface is up.
    pub(super) async fn set_port_state(
        &self,
        plan: &Namespace,
        name: &str,
        index: u32,
        forwarding: bool,
    ) -> Result<(), Failure> {
        let message = state_message(index, forwarding);
        let result = self.handle.link().set(message).execute().await;
        let verb = if forwarding { "enable" } else { "disable" };
        result.in_step(&plan.name, format_args!("{verb} bridge port {name}"))
    }

    /// Writes the settings of a bridge port, except its state.
    pub(super) async fn set_port(
        &self,
        plan: &Namespace,
        name: &str,
        index: u32,
        settings: PortSettings,
    ) -> Result<(), Failure> {
        let port = port_message(index, settings);
        let result = self.handle.link().set_port(port).execute().await;
        let step = format_args!("set{settings} on bridge port {name}");
        result.in_step(&plan.name, step)
    }

    /// Removes the forwarding entries that a bridge learned at a port. A port that was created with
    /// other settings would not have them.
    pub(super) async fn flush_port(
        &self,
        plan: &Namespace,
        name: &str,
        index: u32,
    ) -> Result<(), Failure> {
        let port = LinkBridgePort::new(index).append_info_data(InfoBridgePort::Flush);
        let result = self.handle.link().set_port(port.build()).execute().await;
        let step = format_args!("remove the learned entries of bridge port {name}");
        result.in_step(&plan.name, step)
    }

    fn add_addresses<'n>(
        &self,
        batch: &mut Batch<'n>,
        plan: &'n Namespace,
        addresses: &'n [IpNetwork],
        index: u32,
        link: &'n str,
    ) {
        for address in addresses {
            let mut request = self
                .handle
                .address()
                .add(index, address.ip(), address.prefix());
            let message = RouteNetlinkMessage::NewAddress(request.message_mut().clone());
            batch.push(message, CREATE, move |error| {
                let step = format_args!("add address {address} to {link}");
                let arguments = format!("{address} dev {link}");
                let failure = step_failure(&plan.name, step, &error);
                failure::with_rejected_input(failure, &plan.name, IP_ADDR, arguments)
            });
        }
    }
}

/// Returns the request for the settings of a bridge port, except its state. A kernel before v5.16
/// ignores `locked`.
fn port_message(index: u32, settings: PortSettings) -> LinkMessage {
    LinkBridgePort::new(index)
        .hairpin(settings.hairpin)
        .learning(settings.learning)
        .flood(settings.flood)
        .append_info_data(InfoBridgePort::Isolated(settings.isolated))
        .append_info_data(InfoBridgePort::Locked(settings.locked))
        .build()
}

/// Returns the request for the state of a bridge port, as `bridge link set` sends it. After a request
/// as that of [`port_message`], the kernel enables the port again (Linux v6.12,
/// `net/core/rtnetlink.c`, `do_setlink`, and `net/bridge/br.c`, `br_device_event`).
fn state_message(index: u32, forwarding: bool) -> LinkMessage {
    let state = if forwarding {
        BridgePortState::Forwarding
    } else {
        BridgePortState::Disabled
    };
    let state = DefaultNla::new(IFLA_BRPORT_STATE, vec![state.into()]);
    let mut message = LinkMessage::default();
    message.header.interface_family = AddressFamily::Bridge;
    message.header.index = index;
    let settings = vec![LinkProtoInfoBridge::Other(state)];
    message
        .attributes
        .push(LinkAttribute::ProtoInfoBridge(settings));
    message
}

/// Creates every interface of every namespace: bridges, veth pairs between namespaces, tunnels. All
/// interfaces stay down.
///
/// # Errors
///
/// When the kernel rejects an interface, or the plan contains only one end of a veth pair.
pub(crate) async fn make_links(
    namespaces: &[(NetNs, NamespaceNetlink)],
    plans: &[Namespace],
) -> Result<(), Failure> {
    let positions: HashMap<&str, usize> = plans
        .iter()
        .enumerate()
        .map(|(position, plan)| (plan.name.as_str(), position))
        .collect();
    for (position, plan) in plans.iter().enumerate() {
        let netlink = &namespaces[position].1;
        let mut batch = Batch::new(netlink);
        for link in &plan.links {
            let index = netlink.index(plan, &link.name)?;
            let request = match &link.kind {
                LinkKind::Bridge => {
                    // `LinkBridge::new` would set the bridge up.
                    let bridge = LinkMessageBuilder::<LinkBridge>::new(&link.name);
                    with_common_fields(bridge, index, plan, link).build()
                }
                LinkKind::Dummy => {
                    with_common_fields(LinkDummy::new(&link.name), index, plan, link).build()
                }
                LinkKind::Vxlan {
                    vni,
                    port,
                    dev,
                    local,
                } => {
                    let tunnel = LinkVxlan::new(&link.name, *vni)
                        .dev(netlink.index(plan, dev)?)
                        .port(*port)
                        .learning(false);
                    let tunnel = match local {
                        IpAddr::V4(local) => tunnel.local(*local),
                        IpAddr::V6(local) => tunnel.local6(*local),
                    };
                    with_common_fields(tunnel, index, plan, link).build()
                }
                LinkKind::Veth { namespace, peer } => {
                    let one_end = || {
                        failure::bug(format!(
                            "the plan has only one end of the veth pair {} in {}",
                            link.name, plan.name
                        ))
                    };
                    let peer_position = *positions.get(namespace.as_str()).ok_or_else(one_end)?;
                    let peer_plan = &plans[peer_position];
                    let mut peer_links = peer_plan.links.iter();
                    let peer_link = peer_links
                        .find(|other| other.name == *peer)
                        .ok_or_else(one_end)?;
                    // Both ends refer to their veth pair, which is created once.
                    if (peer_position, peer) < (position, &link.name) {
                        continue;
                    }
                    let (peer_ns, peer_netlink) = &namespaces[peer_position];
                    let peer_index = peer_netlink.index(peer_plan, peer)?;
                    let peer_request = LinkUnspec::new_with_name(peer);
                    let peer_request =
                        with_common_fields(peer_request, peer_index, peer_plan, peer_link)
                            .setns_by_fd(peer_ns.as_raw_fd())
                            .build();
                    with_common_fields(LinkVeth::new(&link.name, peer), index, plan, link)
                        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer_request)))
                        .build()
                }
            };
            batch.push(RouteNetlinkMessage::NewLink(request), CREATE, |error| {
                cannot_create_link(&plan.name, link, &error)
            });
        }
        batch.send()?;
        yield_now().await;
    }
    Ok(())
}

fn with_common_fields<T>(
    builder: LinkMessageBuilder<T>,
    index: u32,
    plan: &Namespace,
    link: &Link,
) -> LinkMessageBuilder<T> {
    let mut builder = builder.index(index).address(link.mac.0.to_vec());
    // Otherwise TCP hands over segments of up to 64 KiB, and veth interfaces and bridges forward
    // them whatever their MTU is (Linux v6.12, `include/linux/netdevice.h`, `__is_skb_forwardable`).
    // A wire does not.
    if link.kind != LinkKind::Dummy {
        builder = builder.append_extra_attribute(LinkAttribute::GsoMaxSegs(1));
    }
    match created_mtu(plan, link) {
        Some(mtu) => builder.mtu(mtu),
        None => builder,
    }
}

/// Returns the MTU with which an interface is created. The MTU of a new tunnel must fit into that of
/// the interface below, which can become smaller afterwards (Linux v6.12,
/// `drivers/net/vxlan/vxlan_core.c`, `vxlan_config_apply`).
fn created_mtu(plan: &Namespace, link: &Link) -> Option<u32> {
    let own = link.mtu?;
    let tunnels = plan.links.iter().filter_map(|tunnel| match &tunnel.kind {
        LinkKind::Vxlan { dev, local, .. } if *dev == link.name => {
            let overhead = if local.is_ipv6() { 70 } else { 50 };
            Some(tunnel.mtu? + overhead)
        }
        _ => None,
    });
    Some(tunnels.fold(own, u32::max))
}

/// Whether any interface of the namespace has an address of the family.
pub(crate) fn has_address_of(plan: &Namespace, family: AddressFamily) -> bool {
    plan.links
        .iter()
        .flat_map(|link| &link.addresses)
        .any(|address| {
            matches!(
                (address, family),
                (IpNetwork::V4(_), AddressFamily::Inet) | (IpNetwork::V6(_), AddressFamily::Inet6)
            )
        })
}

fn cannot_create_link(namespace: &str, link: &Link, error: &rtnetlink::Error) -> Failure {
    let step = format_args!("create interface {}", link.name);
    let mut failure = step_failure(namespace, step, error);
    // The kernel returns this error for a link kind whose module is missing.
    if errno(error) == Errno::EOPNOTSUPP {
        let module = match link.kind {
            LinkKind::Veth { .. } => "veth",
            LinkKind::Bridge => "bridge",
            LinkKind::Dummy => "dummy",
            LinkKind::Vxlan { .. } => "vxlan",
        };
        failure.remedy = Some(format!("run `modprobe {module}` as root"));
    }
    failure
}
