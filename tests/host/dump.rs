//! Tests that the output of real programs is parsed, and has the same meaning after these programs
//! load it again.

use std::io::Write as _;
use std::process::{Command, Stdio};

use svclab_diagnostic::Rendering;
use svclab_dump::compare::iptables::{Order, compare as compare_rules};
use svclab_dump::{Difference, File, NodeDump, ParsedDump, compare};
use svclab_ruleset::iptables::{self};
use svclab_ruleset::tool::Format;

/// Rules with every kind of quoting, in matches that kube-proxy's rules need, too.
const ODD_RULES: &str = r#"*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [12:720]
:OUTPUT ACCEPT [0:0]
:odd-chain - [0:0]
:$odd%;chain - [0:0]
-A INPUT -m comment --comment "a \"quoted\" word, a \\ backslash and an 'apostrophe'" -j odd-chain
-A INPUT -m comment --comment -dash -j ACCEPT
-A INPUT -m comment --comment "!" -j ACCEPT
-A INPUT -m comment --comment "  blanks  "
-A INPUT -m comment --comment "-j DROP" -j RETURN
-A INPUT -m comment --comment "COMMIT" -j $odd%;chain
-A INPUT -m comment --comment "ümlaut # and *star" -j RETURN
-A INPUT ! -s 10.0.0.0/8 ! -d 10.1.0.0/255.255.0.0 ! -i eth+ -p tcp -m tcp ! --dport 8000:8080 -j odd-chain
-A INPUT -s 10.0.0.0/255.0.255.0 -p 17 -m udp --sport 53 -j odd-chain
-A INPUT -p tcp -m tcp ! --tcp-flags SYN,ACK SYN -j DROP
-A INPUT -m mark ! --mark 0x4000/0x4000 -m conntrack ! --ctstate RELATED,ESTABLISHED -g odd-chain
-A odd-chain -f -j RETURN
-A odd-chain -m addrtype ! --dst-type LOCAL -p tcp -j REJECT --reject-with tcp-reset
-A odd-chain -m statistic --mode random --probability 0.3333333 -j RETURN
[5:300] -A odd-chain -j MARK --or-mark 0x4000
-A odd-chain
COMMIT
"#;

/// Returns the output of a shell script in a new network namespace. Without root, the script runs
/// in a user namespace.
fn run_in_namespace(script: &str, input: &str) -> String {
    let lock = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let mut child = command
        .args(["--net", "sh", "-euc", script])
        .env("XTABLES_LOCKFILE", lock.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("unshare starts");
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    // A script that reads no input may have ended.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("the shell ends");
    let stderr_text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {stderr_text}");
    String::from_utf8(output.stdout).expect("programs print UTF-8")
}

fn parse(format: Format, text: &str) -> NodeDump {
    let read = NodeDump::parse(vec![File {
        name: format.file_name().to_owned(),
        format: Some(format),
        text: text.to_owned(),
    }]);
    let ParsedDump {
        dump,
        sources,
        diagnostics,
        ..
    } = read;
    let messages: Vec<String> = diagnostics
        .iter()
        .map(|diagnostic| diagnostic.render(&sources, Rendering::default()))
        .collect();
    assert!(messages.is_empty(), "{text}\n{}", messages.join("\n"));
    dump
}

fn assert_same(format: Format, first: &str, second: &str) {
    let differences = compare(&parse(format, first), &parse(format, second));
    let messages: Vec<String> = differences.iter().map(Difference::to_string).collect();
    assert!(messages.is_empty(), "{first}\n{}", messages.join("\n"));
}

fn assert_rules_round_trip(infix: &str, kind: &str, rules: &str) {
    let script = format!("ip{infix}tables-{kind}-restore; ip{infix}tables-{kind}-save");
    let counted = script.replace("-restore", "-restore -c") + " -c";
    let saved = run_in_namespace(&script, rules);
    let given = iptables::IptablesRules::parse(rules).expect("the rules");
    let read = iptables::IptablesRules::parse(&saved).expect("the saved rules");
    assert_eq!(compare_rules(&given, &read, Order::Strict), [], "{saved}");
    // Loads the rules as svclab renders them, and with counters.
    let again = run_in_namespace(&script, &read.to_string());
    let again = iptables::IptablesRules::parse(&again).expect("the rules that were saved again");
    assert_eq!(compare_rules(&read, &again, Order::Strict), []);
    let counted = run_in_namespace(&counted, rules);
    let counted =
        iptables::IptablesRules::parse(&counted).expect("the rules that were saved with counters");
    assert_eq!(compare_rules(&read, &counted, Order::Strict), []);
    let packet_counters = |dump: &iptables::IptablesRules| -> Vec<Option<u64>> {
        let chains = dump.tables.iter().flat_map(|table| &table.chains);
        let rules = chains.flat_map(|chain| &chain.rules);
        rules.map(|rule| rule.packets).collect()
    };
    assert!(packet_counters(&counted).iter().all(Option::is_some));
    // ip6tables-nft-restore 1.8.9 does not restore counters.
    if !(infix == "6" && kind == "nft") {
        assert!(packet_counters(&counted).contains(&Some(5)));
    }
}

#[test]
fn rules_odd_restored_by_iptables_nft_are_equal() {
    assert_rules_round_trip("", "nft", ODD_RULES);
}

#[test]
fn rules_odd_restored_by_iptables_legacy_are_equal() {
    assert_rules_round_trip("", "legacy", ODD_RULES);
}

#[test]
fn rules_odd_restored_by_ip6tables_are_equal() {
    let six: String = ODD_RULES
        .lines()
        .filter(|line| !line.contains(" -f ") && !line.contains("255.0.255.0"))
        .map(|line| {
            line.replace("10.0.0.0/8", "fd00::/8")
                .replace("10.1.0.0/255.255.0.0", "FD00:1::0:1/64")
                + "\n"
        })
        .collect();
    assert_rules_round_trip("6", "nft", &six);
    assert_rules_round_trip("6", "legacy", &six);
}

#[test]
fn rules_changed_by_iptables_differ() {
    let script =
        "iptables-nft-restore; iptables-nft -A INPUT -s 10.9.9.9 -j DROP; iptables-nft-save";
    let saved = run_in_namespace(script, ODD_RULES);
    let given = iptables::IptablesRules::parse(ODD_RULES).expect("the rules");
    let read = iptables::IptablesRules::parse(&saved).expect("the saved rules");
    let differences: Vec<String> = compare_rules(&given, &read, Order::Strict)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(differences, ["filter INPUT: + -s 10.9.9.9/32 -j DROP"]);
}

/// Matches that not every kernel has, as iptables 1.8.9 printed them.
#[test]
fn rules_with_rare_matches_are_parsed() {
    let text = include_str!("../recorded/odd/iptables-save");
    let format = Format::detect(text).expect("rules");
    let dump = parse(format, text);
    let rules = dump.rules.values().next().expect("rules");
    let again = rules.to_string();
    assert_same(format, text, &again);
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("-A ")).collect();
    let count: usize = rules
        .tables
        .iter()
        .flat_map(|table| &table.chains)
        .map(|chain| chain.rules.len())
        .sum();
    assert_eq!(count, lines.len());
}

#[test]
fn sets_odd_restored_by_ipset_are_equal() {
    let given = "create A hash:ip family inet timeout 600 counters comment\n\
        add A 10.0.0.1 timeout 300 packets 3 bytes 180 comment \"a b 'c\"\n\
        add A 10.0.0.2 timeout 0\n\
        create B bitmap:port range 1-100\nadd B 80\n\
        create C hash:net family inet6 hashsize 64\nadd C fd00::/8\n\
        create D hash:ip,port,net family inet\nadd D 10.0.0.1,udp:53,10.0.0.0/8 nomatch\n\
        add D 10.0.0.1,tcp:53,10.0.0.0/8\n\
        create E hash:ip,port,ip family inet maxelem 100\nadd E 10.0.0.1,sctp:9,10.0.0.2\n";
    let saved = run_in_namespace("ipset restore; ipset save", given);
    assert_same(Format::Sets, given, &saved);
    let again = run_in_namespace("ipset restore; ipset save", &saved);
    assert_same(Format::Sets, &saved, &again);
}

/// Parses interfaces, routes and rules as `ip` prints them. Routes and rules that are loaded into
/// another namespace are the same there.
///
/// An interface gets its link-local address once the kernel's link watch has seen that it is up, which
/// a busy machine delays.
#[test]
fn ip_output_restored_is_equal() {
    const MAKE: &str = "\
        ip link set lo up; ip link add eth0 type veth peer name p0; ip link set p0 up; ip link set eth0 up; \
        ip addr add 10.0.0.1/24 brd + dev eth0 label eth0:1; ip addr add 10.0.0.2/24 dev eth0; \
        ip addr add 10.9.9.9 peer 10.9.9.10/32 dev eth0; ip addr add fd00::1/64 dev eth0 nodad; \
        ip addr add 10.1.1.1/24 dev eth0 valid_lft 1000 preferred_lft 100; \
        for dev in p0 eth0; do until ip addr show $dev | grep -q fe80; do :; done; done; ";
    const ROUTES: &str = "\
        ip route add default via 10.0.0.9 dev eth0 metric 100; \
        ip route add 10.3.0.0/16 nexthop via 10.0.0.5 dev eth0 weight 1 nexthop via 10.0.0.6 dev eth0 weight 2; \
        ip route add blackhole 10.4.0.0/16; ip route add unreachable 10.5.0.0/16 metric 5; \
        ip route add 10.6.0.0/16 via 10.77.0.1 dev eth0 onlink mtu lock 1400 advmss 1300 table 100; \
        ip route add 10.7.0.0/16 via inet6 fe80::5 dev eth0; \
        ip route add 10.8.0.0/16 dev eth0 scope link src 10.0.0.2 proto 99 tos 0x10; \
        ip route add fd01::/64 nexthop via fd00::5 nexthop via fd00::6; \
        ip route add prohibit fd02::/64; \
        ip rule add from 10.0.0.0/24 fwmark 0x4000/0x4000 lookup 100 prio 100; \
        ip rule add not to 10.0.0.0/8 iif eth0 oif p0 lookup 200 suppress_prefixlength 0 prio 99; \
        ip rule add blackhole ipproto tcp dport 80 sport 1-5 uidrange 0-5 prio 98; \
        ip rule add from all goto 32766 prio 7; ip -6 rule add from fd00::/8 lookup 5 prio 6; ";
    let print_after_setup = |print: &str| run_in_namespace(&format!("{MAKE}{ROUTES}{print}"), "");
    for (format, print) in [
        (Format::Links, "ip addr"),
        (
            Format::from_file_name("ip-route").expect("a name"),
            "ip route",
        ),
        (
            Format::from_file_name("ip-route").expect("a name"),
            "ip route show table all",
        ),
        (
            Format::from_file_name("ip-6-route").expect("a name"),
            "ip -6 route",
        ),
        (
            Format::from_file_name("ip-rule").expect("a name"),
            "ip rule",
        ),
        (
            Format::from_file_name("ip-6-rule").expect("a name"),
            "ip -6 rule",
        ),
        (Format::Sysctls, "sysctl -a 2>&1"),
    ] {
        let (first, second) = (print_after_setup(print), print_after_setup(print));
        let looks = Format::detect(&first).expect("the format is detected");
        assert!(format.is_compatible_with(looks), "{print}: {looks}");
        if format == Format::Links {
            // Link-local addresses are tentative for a moment.
            let without_tentative = |text: &str| text.replace(" tentative", "");
            assert_same(
                format,
                &without_tentative(&first),
                &without_tentative(&second),
            );
        } else {
            assert_same(format, &first, &second);
        }
    }
    for (name, print) in [
        ("ip-addr", "addr"),
        ("ip-addr", "-d -s addr"),
        ("ip-link", "-d link"),
        ("ip-route", "-d -4 route show table all"),
        ("ip-6-route", "-6 route show table all"),
        ("ip-rule", "-4 rule"),
        ("ip-6-rule", "-d -6 rule"),
    ] {
        let format = Format::from_file_name(name).expect("a name");
        let both = print_after_setup(&format!("ip {print}; echo; echo =; ip -j {print}"));
        let (text, json) = both.split_once("\n=\n").expect("both outputs");
        // The JSON does not show locks of metrics.
        assert_same(format, &text.replace(" lock ", " "), json);
    }
    let format = Format::from_file_name("ip-route").expect("a name");
    let script = format!("{MAKE}{ROUTES}ip route del 10.8.0.0/16 tos 0x10; ip route");
    let differences = compare(
        &parse(format, &print_after_setup("ip route")),
        &parse(format, &run_in_namespace(&script, "")),
    );
    let messages: Vec<String> = differences.iter().map(Difference::to_string).collect();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(
        messages[0].contains("- 10.8.0.0/16 tos 0x10 dev eth0"),
        "{messages:?}"
    );
}

/// Removes the comments of tables and chains, which the JSON of nftables 1.0.6 does not show.
fn without_comments(text: &str) -> String {
    let mut kept = String::new();
    let mut previous = "";
    for line in text.lines() {
        let is_chain_comment = previous.starts_with("\tchain ") && line.starts_with("\t\tcomment ");
        if !is_chain_comment && !line.starts_with("\tcomment ") {
            kept.push_str(line);
            kept.push('\n');
        }
        previous = line;
    }
    kept
}

/// Parses the JSON of rulesets like their text. The parsed JSON can be loaded, and then has the
/// same meaning.
#[test]
fn nft_json_restored_is_equal() {
    const ODD: &str = "table ip t {
        set seen { type ipv4_addr . inet_service; flags dynamic, timeout; timeout 1h; }
        set nets { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 11.0.0.1-11.0.0.9 } }
        map verdicts { type ifname . mark : verdict; elements = { \"lo\" . 0x5 : accept, \"eth0\" . 0x1 comment \"a b\" : goto end } }
        chain end {
            meta mark set (meta mark | 0x4000) & 0xffff00ff
            ct mark set meta mark
            tcp flags syn / fin,syn,rst,ack tcp option maxseg size set 1400
            limit rate over 10/minute burst 7 packets log prefix \"slow: \" level warn drop
            update @seen { ip saddr . tcp dport timeout 5s } counter reject with icmp host-prohibited
        }
        chain pre {
            type nat hook prerouting priority dstnat - 7; policy accept;
            ip saddr != @nets return
            iifname . meta mark vmap @verdicts
            ip daddr 10.96.0.1 tcp dport { 80, 8000-8080 } dnat to 10.0.0.1-10.0.0.9:80 random
            fib daddr type local tcp dport 81 redirect to :82 comment \"here\"
            tcp dport 83 dnat to numgen random mod 2 map { 0 : 10.0.0.1, 1 : 10.0.0.2 }
        }
    }
    table ip6 t {
        chain post {
            type nat hook postrouting priority srcnat; policy accept;
            oifname \"eth*\" tcp dport 80 snat to [fd00::1]:1024-2000 fully-random
            masquerade
        }
    }";
    let recorded = std::fs::read_to_string(
        svclab_test_support::root()
            .join("tests/recorded/kube-proxy/v1.36.2/nftables/e_all.masqall.nft"),
    );
    for ruleset in [ODD, &recorded.expect("a recorded ruleset")] {
        let script = "nft -f -; nft list ruleset; echo; echo =; nft -j list ruleset";
        let both = run_in_namespace(script, ruleset);
        let (text, json) = both.split_once("\n=\n").expect("both outputs");
        let text = &without_comments(text);
        assert_same(Format::Nft, text, json);
        let parsed = parse(Format::Nft, json).nft.expect("a ruleset");
        let again = run_in_namespace("nft -f -; nft list ruleset", &parsed.to_string());
        assert_same(Format::Nft, text, &again);
    }
}
