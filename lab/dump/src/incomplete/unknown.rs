//! Finds state of interfaces that the outputs of a dump do not show, because their commands lack
//! options. Other outputs of the dump complete the state.

use crate::gap::Gap;
use crate::merge;
use crate::node::NodeDump;
use svclab_ruleset::link::{Link, has_only_addressed_links};
use svclab_ruleset::tool::Format;

impl NodeDump {
    /// Completes interfaces of `ip -o addr`, `ip -4 addr` and `ip -6 addr` with the properties that
    /// `ip link` prints.
    pub(crate) fn complete_links(&mut self) {
        let (Some(links), Some(kinds)) = (&mut self.links, &self.kinds) else {
            return;
        };
        let has_all = !has_only_addressed_links(links);
        for (name, details) in kinds {
            match links.get_mut(name) {
                Some(link) if link.is_partial() => {
                    *link = Link {
                        addresses: std::mem::take(&mut link.addresses),
                        line: link.line,
                        ..details.link.clone()
                    };
                }
                Some(link) if !link.is_complete() || link.link_layer.is_none() => {
                    merge::complete(link, details.link.clone());
                }
                Some(_) => {}
                None if has_all => {}
                None => drop(links.insert(name.clone(), details.link.clone())),
            }
        }
    }

    /// Returns the outputs that do not show all properties of their interfaces.
    pub(crate) fn unknown_state(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let mut add = |format: Format, reason: &str, affects: &str| {
            let name = self.files.get(&format).cloned().unwrap_or_default();
            gaps.push(Gap {
                name,
                reason: reason.to_owned(),
                affects: affects.to_owned(),
                is_uncompared: true,
            });
        };
        if let Some(links) = &self.links
            && (links.values().any(Link::is_partial) || has_only_addressed_links(links))
        {
            add(
                Format::Links,
                "`ip addr` with `-o`, `-4` or `-6` does not print all properties of interfaces",
                "interfaces without addresses, flags and attributes may be unknown; add the output \
                 of `ip addr`",
            );
        }
        let mut kinds = self.kinds.iter().flatten();
        if self.links.is_none() && kinds.any(|(_, link)| !link.is_detailed) {
            add(
                Format::LinkDetails,
                "`ip link` prints no addresses, and no kinds of interfaces without `-d`",
                "interfaces need the output of `ip addr`, and their kinds that of `ip -d link`",
            );
        }
        let ports = self.bridge_ports();
        let mut ports = ports.iter().flat_map(|ports| ports.values());
        if ports.any(|port| !port.is_detailed) {
            add(
                Format::BridgePorts,
                "`bridge link` without `-d` does not print the settings of ports",
                "settings of bridge ports such as `hairpin` are unknown",
            );
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use crate::compare::compare;
    use crate::node::{NodeDump, ParsedDump};

    /// Output of iproute2 6.1 of one node, with different commands.
    const ADDR: &str = "\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
       valid_lft forever preferred_lft forever
    inet6 ::1/128 scope host 
       valid_lft forever preferred_lft forever
6: v1@v2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue master cni0 state UP group default qlen 1000
    link/ether 02:00:00:00:02:01 brd ff:ff:ff:ff:ff:ff
    inet6 fe80::ff:fe00:201/64 scope link tentative 
       valid_lft forever preferred_lft forever
8: dm: <BROADCAST,NOARP,UP,LOWER_UP> mtu 1500 qdisc htb state UNKNOWN group default qlen 32
    link/ether 2a:f7:6e:68:e3:5f brd ff:ff:ff:ff:ff:ff
";
    const FOUR: &str = "\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000
    inet 127.0.0.1/8 scope host lo
       valid_lft forever preferred_lft forever
";
    const SIX: &str = "\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 state UNKNOWN qlen 1000
    inet6 ::1/128 scope host 
       valid_lft forever preferred_lft forever
6: v1@v2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 state UP qlen 1000
    inet6 fe80::ff:fe00:201/64 scope link tentative 
       valid_lft forever preferred_lft forever
";
    const ONE_LINE: &str = "\
1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever
1: lo    inet6 ::1/128 scope host \\       valid_lft forever preferred_lft forever
6: v1    inet6 fe80::ff:fe00:201/64 scope link tentative \\       valid_lft forever preferred_lft forever
";
    const LINK: &str = "\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN mode DEFAULT group default qlen 1000\\    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
6: v1@v2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue master cni0 state UP mode DEFAULT group default qlen 1000\\    link/ether 02:00:00:00:02:01 brd ff:ff:ff:ff:ff:ff
8: dm: <BROADCAST,NOARP,UP,LOWER_UP> mtu 1500 qdisc htb state UNKNOWN mode DEFAULT group default qlen 32\\    link/ether 2a:f7:6e:68:e3:5f brd ff:ff:ff:ff:ff:ff
";

    fn read(files: &[(&str, &str)]) -> ParsedDump {
        let read = NodeDump::parse_texts(files);
        assert!(read.has_no_errors(), "{:?}", read.diagnostics);
        read
    }

    /// Renders the differences and the gaps of two dumps.
    fn differences(first: &[(&str, &str)], second: &[(&str, &str)]) -> String {
        let [first, second] = [read(first), read(second)];
        let changes = compare(&first.dump, &second.dump);
        let gaps = first.gaps.iter().chain(&second.gaps);
        let changes = changes.iter().map(ToString::to_string);
        let lines = changes.chain(gaps.map(super::Gap::describe));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn addresses_of_other_commands_equal_ip_addr() {
        let addr = [("ip-addr", ADDR)];
        insta::assert_snapshot!(differences(&addr, &[("a.ip-addr", FOUR), ("b.ip-addr", SIX)]), @"a.ip-addr: `ip addr` with `-o`, `-4` or `-6` does not print all properties of interfaces; interfaces without addresses, flags and attributes may be unknown; add the output of `ip addr`");
        insta::assert_snapshot!(differences(&addr, &[("ip-addr", ONE_LINE)]), @"ip-addr: `ip addr` with `-o`, `-4` or `-6` does not print all properties of interfaces; interfaces without addresses, flags and attributes may be unknown; add the output of `ip addr`");
        // `ip link` completes the addresses.
        let both = [("ip-addr", ONE_LINE), ("ip-link", LINK)];
        insta::assert_snapshot!(differences(&addr, &both), @"");
        let other = LINK.replace("mtu 1500 qdisc htb", "mtu 1400 qdisc htb");
        let both = [("ip-addr", ONE_LINE), ("ip-link", &other)];
        insta::assert_snapshot!(differences(&addr, &both), @"interface dm: ! mtu: 1500 | 1400");
        // An address differs in all outputs.
        let changed = SIX.replace("fe00:201/64", "fe00:201/128");
        let changed = differences(&addr, &[("a.ip-addr", FOUR), ("b.ip-addr", &changed)]);
        assert!(changed.starts_with("interface v1: "), "{changed}");
    }

    #[test]
    fn links_without_details_are_reported() {
        let link = [("ip-link", LINK)];
        insta::assert_snapshot!(differences(&link, &[("ip-link", &LINK.replace("mtu 1500", "mtu 1400"))]), @r"
        interface v1: ! mtu: 1500 | 1400
        interface dm: ! mtu: 1500 | 1400
        ip-link: `ip link` prints no addresses, and no kinds of interfaces without `-d`; interfaces need the output of `ip addr`, and their kinds that of `ip -d link`
        ip-link: `ip link` prints no addresses, and no kinds of interfaces without `-d`; interfaces need the output of `ip addr`, and their kinds that of `ip -d link`
        ");
    }

    #[test]
    fn ports_without_details_are_reported() {
        let plain = "6: v1@v2: <UP> mtu 1500 master cni0 state forwarding priority 32 cost 2 \n";
        let details = format!("{plain}    hairpin on guard off \n");
        let (plain, details) = ([("bridge-link", plain)], [("bridge-link", &*details)]);
        insta::assert_snapshot!(differences(&details, &details), @"");
        insta::assert_snapshot!(differences(&details, &plain), @"bridge-link: `bridge link` without `-d` does not print the settings of ports; settings of bridge ports such as `hairpin` are unknown");
    }
}
