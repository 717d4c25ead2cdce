//! Splits the settings of an interface kind, as `ip -d link` prints them, into names and values.
//!
//! A name has one value, except for the flags below. Unknown words are names with values, so that
//! no word of the output is lost.

use indexmap::IndexMap;

/// Settings by name, in printed order. A flag has an empty value.
pub type Settings<'t> = IndexMap<&'t str, String>;

/// Settings that interfaces of all kinds have (iproute2 7.1, `ip/ipaddress.c`, `print_linkinfo`).
pub(crate) const COMMON_SETTINGS: [&str; 6] = [
    "addrgenmode",
    "gro_ipv4_max_size",
    "gro_max_size",
    "gso_ipv4_max_size",
    "gso_max_segs",
    "gso_max_size",
];

/// Properties of all interfaces that the hardware or the driver determines, or that change with
/// their users (iproute2 7.1, `ip/ipaddress.c`, `print_linkinfo`).
const DRIVER_PROPERTIES: [&str; 14] = [
    "allmulti",
    "maxmtu",
    "minmtu",
    "netns-immutable",
    "numrxqueues",
    "numtxqueues",
    "parentbus",
    "parentdev",
    "portid",
    "portname",
    "promiscuity",
    "switchid",
    "tso_max_segs",
    "tso_max_size",
];

/// Whether a name in the details is a property of all interfaces, and not a setting of the kind.
pub(crate) fn is_property(name: &str) -> bool {
    COMMON_SETTINGS.contains(&name) || DRIVER_PROPERTIES.contains(&name)
}

/// Words without a value; each can have the prefix `no` (iproute2 7.1, `ip/iplink_*.c`,
/// `ip/link_*.c`, `ip/tunnel.c`, `tnl_print_encap`). The words from `any` on are values that
/// are printed without a name.
const FLAGS: [&str; 50] = [
    "allow-localremote",
    "encap-csum",
    "encap-csum6",
    "encap-remcsum",
    "external",
    "gbp",
    "gpe",
    "icsum",
    "ignore-df",
    "innerprotoinherit",
    "iseq",
    "isatap",
    "l2miss",
    "l3miss",
    "learning",
    "localbypass",
    "mcroute",
    "mip6",
    "multi_queue",
    "multiproto",
    "netns-immutable",
    "nodst",
    "nopromisc",
    "ocsum",
    "oseq",
    "pmtudisc",
    "private",
    "proxy",
    "remcsum_rx",
    "remcsum_tx",
    "remcsumrx",
    "remcsumtx",
    "rsc",
    "udp6zerocsumrx",
    "udp6zerocsumtx",
    "udp_csum",
    "udp_zero_csum6_rx",
    "udp_zero_csum6_tx",
    "udpcsum",
    "vepa",
    "vnifilter",
    "any",
    "bridge",
    "gateway",
    "ip6ip",
    "ip6ip6",
    "ipip",
    "ipip6",
    "mplsip",
    "relay",
];

/// Words of iproute2 7.1 for switches of `vxlan`, with the words of earlier versions
/// (`ip/iplink_vxlan.c`, `vxlan_opts`; iproute2 6.1, `vxlan_print_opt`).
const VXLAN_WORDS: [(&str, &str); 10] = [
    ("noremcsum_rx", "noremcsumrx"),
    ("noremcsum_tx", "noremcsumtx"),
    ("noudp_csum", "noudpcsum"),
    ("noudp_zero_csum6_rx", "noudp6zerocsumrx"),
    ("noudp_zero_csum6_tx", "noudp6zerocsumtx"),
    ("remcsum_rx", "remcsumrx"),
    ("remcsum_tx", "remcsumtx"),
    ("udp_csum", "udpcsum"),
    ("udp_zero_csum6_rx", "udp6zerocsumrx"),
    ("udp_zero_csum6_tx", "udp6zerocsumtx"),
];

/// Defaults of switches of `vxlan`, which not every version of iproute2 prints.
const VXLAN_DEFAULTS: [&str; 14] = [
    "learning",
    "localbypass",
    "noexternal",
    "nol2miss",
    "nol3miss",
    "nomcroute",
    "noproxy",
    "noremcsumrx",
    "noremcsumtx",
    "norsc",
    "noudp6zerocsumrx",
    "noudp6zerocsumtx",
    "novnifilter",
    "udpcsum",
];

/// Returns the settings of `vxlan` in the words of iproute2 6.1, without defaults of switches.
pub(crate) fn normalize_vxlan(settings: Settings<'_>) -> Settings<'_> {
    let renamed = settings.into_iter().map(|(name, value)| {
        let known = VXLAN_WORDS.iter().find(|(word, _)| *word == name);
        (known.map_or(name, |(_, word)| word), value)
    });
    renamed
        .filter(|(name, _)| !VXLAN_DEFAULTS.contains(name))
        .collect()
}

/// Parses the settings of a kind.
pub(crate) fn parse_kind(text: &str) -> Settings<'_> {
    parse(text, |word| {
        let is_flag = |word: &str| FLAGS.contains(&word);
        is_flag(word) || word.strip_prefix("no").is_some_and(is_flag)
    })
}

/// Parses the settings of a port of a bridge or bond. Each has a value: `learning on`.
pub(crate) fn parse_port(text: &str) -> Settings<'_> {
    parse(text, |word| word == "netns-immutable")
}

fn parse(text: &str, is_flag: impl Fn(&str) -> bool) -> Settings<'_> {
    let mut settings = Settings::new();
    let mut name = "";
    // Number of words that follow as the value of `name`.
    let mut missing = 0_u32;
    let mut is_map = false;
    for word in text.split_ascii_whitespace() {
        let is_value = missing > 0 || is_map || is_further_value(word);
        if is_value && !name.is_empty() {
            let value: &mut String = settings.entry(name).or_default();
            if !value.is_empty() {
                value.push(' ');
            }
            value.push_str(word);
            missing = missing.saturating_sub(1);
            // A map of VLAN priorities: `{ 1:2 3:4 }`.
            is_map = word == "{" || (is_map && word != "}");
            continue;
        }
        name = word;
        settings.entry(name).or_default();
        missing = match word {
            // The settings of the other end of netkit: `peer policy forward`.
            "peer" => 2,
            _ if is_flag(word) || word.starts_with('<') => 0,
            _ => 1,
        };
    }
    settings
}

/// Whether a word is another value of the last name: a number, a hardware address, or a text in
/// parentheses.
fn is_further_value(word: &str) -> bool {
    let is_mac = || {
        let mut bytes = word.split(':');
        word.contains(':')
            && bytes.all(|byte| byte.len() == 2 && u8::from_str_radix(byte, 16).is_ok())
    };
    word.starts_with(|c: char| c.is_ascii_digit() || c == '(') || is_mac()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(settings: &Settings<'_>) -> String {
        let settings = settings
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        settings.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn kind_settings_keep_words_in_order() {
        let render = |text| render(&parse_kind(text));
        insta::assert_snapshot!(
            render("mode active-backup arp_validate none fail_over_mac active min_links 0"),
            @"mode=active-backup, arp_validate=none, fail_over_mac=active, min_links=0"
        );
        insta::assert_snapshot!(
            render("type tap pi off vnet_hdr on persist off"),
            @"type=tap, pi=off, vnet_hdr=on, persist=off"
        );
        insta::assert_snapshot!(
            render("protocol 802.1Q id 5 <REORDER_HDR> ingress-qos-map { 1:2 3:4 } addrgenmode eui64"),
            @"protocol=802.1Q, id=5, <REORDER_HDR>=, ingress-qos-map={ 1:2 3:4 }, addrgenmode=eui64"
        );
        insta::assert_snapshot!(
            render("ipip remote any local 10.0.0.1 ttl inherit nopmtudisc encap fou encap-sport auto noencap-csum"),
            @"ipip=, remote=any, local=10.0.0.1, ttl=inherit, nopmtudisc=, encap=fou, encap-sport=auto, noencap-csum="
        );
        insta::assert_snapshot!(
            render("mode source remotes (2) 02:00:00:00:00:01 ee:00:00:00:00:02 peer policy forward novel x"),
            @"mode=source, remotes=(2) 02:00:00:00:00:01 ee:00:00:00:00:02, peer=policy forward, novel=x"
        );
    }

    #[test]
    fn port_settings_have_values() {
        let settings =
            parse_port("state forwarding learning on hold_timer    0.00 backup_port eth1");
        insta::assert_snapshot!(
            render(&settings),
            @"state=forwarding, learning=on, hold_timer=0.00, backup_port=eth1"
        );
    }

    #[test]
    fn vxlan_settings_of_versions_are_equal() {
        let old = "id 1 dstport 8472 nolearning ttl auto ageing 300 udpcsum noudp6zerocsumtx noudp6zerocsumrx";
        let new = "id 1 dstport 8472 ttl auto ageing 300 nolearning";
        let all = "id 1 dstport 8472 ttl auto ageing 300 noexternal nolearning noproxy udp_csum noudp_zero_csum6_tx localbypass";
        let [old, new, all] = [old, new, all].map(|text| normalize_vxlan(parse_kind(text)));
        assert_eq!(old, new);
        assert_eq!(all, new);
        let with_underscore = normalize_vxlan(parse_kind("id 1 noudp_csum"));
        assert_eq!(
            with_underscore,
            normalize_vxlan(parse_kind("id 1 noudpcsum"))
        );
        assert_eq!(with_underscore.len(), 2);
    }
}
