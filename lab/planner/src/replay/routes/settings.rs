//! Replays the conditions and settings of a dumped route.

use ipnetwork::IpNetwork;

use svclab_model::plan::RouteSettings;
use svclab_ruleset::Family;
use svclab_ruleset::text::attributes::Attributes;

/// Returns the conditions and settings of a route.
///
/// # Errors
///
/// Returns the reason if a replay does not support the route.
pub(super) fn plan_settings(
    ip: Family,
    attributes: &Attributes,
) -> Result<RouteSettings, &'static str> {
    check_encapsulation(attributes)?;
    let tos = attributes.get("tos").or_else(|| attributes.get("dsfield"));
    let tos = tos.map(|text| {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        u8::from_str_radix(digits, 16).map_err(|_| "its `tos` is not a number")
    });
    let from = attributes.get("from").map(|text| match ip {
        Family::V4 => Err("IPv4 routes have no `from`"),
        Family::V6 => text
            .parse::<IpNetwork>()
            .map_err(|_| "its `from` is not a network"),
    });
    // Only the lock of the MTU has an effect on packets (Linux v6.12, uses of `dst_metric_locked`).
    let number = |name: &str| {
        let text = attributes.get(name);
        let text = text.map(|text| text.trim_start_matches("lock "));
        let parsed = text.map(str::parse::<u32>).transpose();
        parsed.map_err(|_| "one of its settings is not a number")
    };
    Ok(RouteSettings {
        tos: tos.transpose()?.filter(|tos| *tos != 0),
        from: from.transpose()?,
        mtu: number("mtu")?,
        mtu_locked: attributes
            .get("mtu")
            .is_some_and(|text| text.starts_with("lock ")),
        advertised_mss: number("advmss")?,
        hop_limit: number("hoplimit")?,
    })
}

/// Checks that a route, or a next hop of it, does not encapsulate packets.
///
/// # Errors
///
/// Returns the reason if it does.
pub(super) fn check_encapsulation(attributes: &Attributes) -> Result<(), &'static str> {
    if attributes.has("encap") {
        return Err("svclab does not support `encap` in routes");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_ruleset::route::parse;
    use svclab_ruleset::text::Text;

    #[test]
    fn settings_of_ipv6_route_contain_source() {
        let route = "2001:db8::/32 from fd00:1::/64 via fe80::1 dev eth0 metric 1024 mtu 1400";
        let mut problems = Vec::new();
        let routes = parse(&Text::new(route), Family::V6, &mut problems);
        let settings = plan_settings(Family::V6, &routes[0].attributes).expect("settings");
        assert_eq!(settings.to_string(), " from fd00:1::/64 mtu 1400");
    }
}
