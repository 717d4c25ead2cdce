//! Runs the trials with nftables tables like those of kube-proxy's nftables mode.

use svclab_model::evidence::{Attempt, Verdict};

use super::{Lab, RETRANSMISSION_TIME};

/// Names and functions of the trials.
pub const TRIALS: [(&str, fn()); 9] = [
    (
        "drop before confirmation is not settled",
        dropped_before_confirmation_is_not_settled,
    ),
    (
        "drop after confirmation is settled",
        dropped_after_confirmation_is_settled,
    ),
    (
        "drop after a random map is not settled",
        dropped_after_random_map_is_not_settled,
    ),
    (
        "drop by a map entry is settled",
        dropped_by_map_entry_is_settled,
    ),
    (
        "dropped reply is settled with rules for new connections",
        dropped_reply_is_settled,
    ),
    (
        "dropped reply before a mark by state is not settled",
        dropped_reply_with_state_mark_is_not_settled,
    ),
    (
        "random drop is not settled",
        dropped_at_random_is_not_settled,
    ),
    (
        "drop until a set entry exists is not settled",
        dropped_until_set_entry_is_not_settled,
    ),
    (
        "reject without ICMP is not settled",
        rejected_without_icmp_is_not_settled,
    ),
];

/// Returns the table of a service with one address and two endpoints. `service` is the rule of its
/// chain, and `more` follows in the table.
fn service_table(service: &str, more: &str) -> String {
    format!(
        "table ip kube-proxy {{
	map service-ips {{
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = {{ 10.96.0.1 . tcp . 80 : goto service-AAAAAAAA-ns/web/tcp/p }}
	}}

	chain nat-prerouting {{
		type nat hook prerouting priority -100; policy accept;
		jump services
	}}

	chain services {{
		ip daddr . meta l4proto . th dport vmap @service-ips
	}}

	chain service-AAAAAAAA-ns/web/tcp/p {{
		{service}
	}}

	chain one {{
		meta l4proto tcp dnat to 10.0.2.2:8080
	}}

	chain other {{
		meta l4proto tcp dnat to 10.0.2.2:9999
	}}
{more}}}
"
    )
}

/// Rules that send to a random endpoint, and to the second endpoint.
const SEND_TO_RANDOM: &str = "numgen random mod 2 vmap { 0 : goto one, 1 : goto other }";
const SEND_TO_SECOND: &str = "goto other";

/// Returns a chain at a hook.
fn filter_chain(hook: &str, rules: &str) -> String {
    format!(
        "\n\tchain filter-{hook} {{\n\t\ttype filter hook {hook} priority 0; policy accept;\n\t\t{rules}\n\t}}\n"
    )
}

/// Returns a chain that drops new connections to the second endpoint, as kube-proxy writes it.
fn drop_new_connections() -> String {
    filter_chain("forward", "ct state new jump service-endpoints-check")
        + "
	map no-endpoint-services {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.0.2.2 . tcp . 9999 comment \"ns/web:p\" : drop }
	}

	chain service-endpoints-check {
		ip daddr . meta l4proto . th dport vmap @no-endpoint-services
	}
"
}

fn separate_table(filter: &str) -> String {
    format!("table ip fw {{{filter}}}\n")
}

fn has_retransmission_success(attempts: &[Attempt]) -> bool {
    let is_success = |attempt: &Attempt| {
        attempt.verdict == Verdict::Connected && attempt.duration > RETRANSMISSION_TIME
    };
    attempts.iter().any(is_success)
}

// The router drops the packet before conntrack confirms the entry, so a random choice decides the
// next SYN again.
fn dropped_before_confirmation_is_not_settled() {
    let router = service_table(
        SEND_TO_RANDOM,
        &filter_chain("forward", "tcp dport 9999 drop"),
    );
    let attempts = Lab::with_tables(router, "").assert_not_settled();
    assert!(has_retransmission_success(&attempts), "{attempts:#?}");
}

// The router's conntrack entry with the choice is confirmed.
fn dropped_after_confirmation_is_settled() {
    let server = separate_table(&filter_chain("input", "tcp dport 9999 drop"));
    let lab = Lab::with_tables(
        service_table(SEND_TO_RANDOM, &check_without_match()),
        &server,
    );
    lab.assert_settled(&[Verdict::Connected, Verdict::Timeout]);
}

/// Returns the same chain, which matches no endpoint.
fn check_without_match() -> String {
    drop_new_connections().replace("9999", "9998")
}

// As kube-proxy v1.36 writes it.
fn dropped_after_random_map_is_not_settled() {
    let map = "meta l4proto tcp dnat ip addr . port to numgen random mod 2 map { 0 : 10.0.2.2 . \
               8080, 1 : 10.0.2.2 . 9999 }";
    let router = service_table(map, &filter_chain("forward", "tcp dport 9999 drop"));
    let attempts = Lab::with_tables(router, "").assert_not_settled();
    assert!(has_retransmission_success(&attempts), "{attempts:#?}");
}

fn dropped_by_map_entry_is_settled() {
    Lab::with_tables(service_table(SEND_TO_SECOND, &drop_new_connections()), "")
        .assert_settled(&[Verdict::Timeout]);
}

// The retransmitted SYN belongs to an answered connection, so its conntrack state is no longer new.
fn dropped_reply_is_settled() {
    let drops = separate_table(&filter_chain(
        "forward",
        "ip saddr 10.0.2.2 tcp sport 9999 drop",
    ));
    let router = service_table(SEND_TO_RANDOM, &check_without_match()) + &drops;
    Lab::with_tables(router, "").assert_settled(&[Verdict::Connected, Verdict::Timeout]);
}

// The first SYN is new and gets the mark. The retransmission belongs to an answered connection and
// does not.
fn dropped_reply_with_state_mark_is_not_settled() {
    let marks = filter_chain("forward", "ct state new meta mark set 0x1")
        + &filter_chain("postrouting", "ip saddr 10.0.2.2 tcp sport 9999 drop");
    let lab = Lab::with_tables(service_table(SEND_TO_SECOND, &marks), "");
    lab.assert_not_settled();
}

fn dropped_at_random_is_not_settled() {
    let draws = filter_chain("forward", "tcp dport 9999 numgen random mod 2 0 drop");
    let attempts = Lab::with_tables(service_table(SEND_TO_SECOND, &draws), "").assert_not_settled();
    assert!(has_retransmission_success(&attempts), "{attempts:#?}");
}

// As with session affinity, the second packet matches the entry that the first one added.
fn dropped_until_set_entry_is_not_settled() {
    let remembers = "\n\tset seen {\n\t\ttype ipv4_addr . inet_service\n\t\tsize 65535\n\
                     \t\tflags dynamic,timeout\n\t\ttimeout 1m\n\t}\n"
        .to_owned()
        + &filter_chain(
            "forward",
            "tcp dport 9999 ip saddr . tcp sport @seen accept\n\
             \t\ttcp dport 9999 update @seen { ip saddr . tcp sport } drop",
        );
    let attempts =
        Lab::with_tables(service_table(SEND_TO_SECOND, &remembers), "").assert_not_settled();
    assert!(has_retransmission_success(&attempts), "{attempts:#?}");
}

// The kernel limits ICMP errors per second: the next SYN may get an error.
fn rejected_without_icmp_is_not_settled() {
    let refuses = filter_chain("forward", "tcp dport 9999 reject")
        + &filter_chain("output", "meta l4proto icmp drop");
    Lab::with_tables(service_table(SEND_TO_SECOND, &refuses), "").assert_not_settled();
}
