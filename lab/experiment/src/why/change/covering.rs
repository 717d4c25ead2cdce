//! Finds the networks that contain all pod networks.

use ipnetwork::IpNetwork;

/// Returns the pod networks in the format of `--cluster-cidr`: for each IP family, the smallest
/// network that contains all pod networks. Returns `None` if there are none.
pub(in crate::why) fn covering_networks(all: impl Iterator<Item = IpNetwork>) -> Option<String> {
    let mut families: [Option<IpNetwork>; 2] = [None, None];
    for network in all {
        let current = &mut families[usize::from(network.is_ipv6())];
        *current = Some(match *current {
            None => network,
            Some(held) => enclosing_network(held, network),
        });
    }
    let networks = families.into_iter().flatten();
    let texts: Vec<String> = networks.map(|network| network.to_string()).collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

/// Returns the smallest network that contains two networks of one IP family.
fn enclosing_network(left: IpNetwork, right: IpNetwork) -> IpNetwork {
    let mut prefix = left.prefix().min(right.prefix());
    loop {
        let network = IpNetwork::new(left.ip(), prefix)
            .and_then(|made| IpNetwork::new(made.network(), prefix));
        match network {
            Ok(made) if made.contains(right.ip()) || prefix == 0 => return made,
            Ok(_) => prefix -= 1,
            Err(_) => return left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covering_networks_smallest_of_each_family_is_listed() {
        let covered = |all: &[&str]| {
            let all = all.iter().map(|text| text.parse().expect("valid network"));
            covering_networks(all)
        };
        let result = covered(&["10.244.1.0/24", "10.244.2.0/24"]);
        assert_eq!(result.as_deref(), Some("10.244.0.0/22"));
        let result = covered(&["10.244.1.0/24"]);
        assert_eq!(result.as_deref(), Some("10.244.1.0/24"));
        let both = covered(&[
            "10.0.0.0/24",
            "fd00:1::/64",
            "192.168.0.0/16",
            "fd00:2::/64",
        ]);
        assert_eq!(both.as_deref(), Some("0.0.0.0/0,fd00::/30"));
        assert_eq!(covered(&[]), None);
    }
}
