//! Runs the trials with nftables tables like those of kube-proxy's nftables mode.

use svclab_model::evidence::{Attempt, Verdict};

use super::{AGAIN, Lab};

/// Names and functions of the trials.
pub const TRIALS: [(&str, fn()); 9] = [
    (
        "what is dropped where it was drawn is waited for",
        what_is_dropped_where_it_was_drawn_is_waited_for,
    ),
    (
        "what is dropped behind where it was drawn is settled",
        what_is_dropped_behind_where_it_was_drawn_is_settled,
    ),
    (
        "what a map sends there or there is waited for",
        what_a_map_sends_there_or_there_is_waited_for,
    ),
    (
        "what an entry drops is settled",
        what_an_entry_drops_is_settled,
    ),
    (
        "an answer that is dropped is settled though rules ask for new connections",
        an_answer_that_is_dropped_is_settled,
    ),
    (
        "what waits for an answer before it is marked is waited for",
        what_waits_for_an_answer_before_it_is_marked_is_waited_for,
    ),
    (
        "what a draw drops is waited for",
        what_a_draw_drops_is_waited_for,
    ),
    (
        "who is remembered by a set is waited for",
        who_is_remembered_by_a_set_is_waited_for,
    ),
    (
        "what is refused without a word is waited for",
        what_is_refused_without_a_word_is_waited_for,
    ),
];

/// Returns the table of a service with one address and two endpoints. `service` is the rule of its
/// chain, and `more` follows in the table.
fn table(service: &str, more: &str) -> String {
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
const EITHER: &str = "numgen random mod 2 vmap { 0 : goto one, 1 : goto other }";
const OTHER: &str = "goto other";

/// Returns a chain at a hook.
fn filter(hook: &str, rules: &str) -> String {
    format!(
        "\n\tchain filter-{hook} {{\n\t\ttype filter hook {hook} priority 0; policy accept;\n\t\t{rules}\n\t}}\n"
    )
}

/// Returns a chain that drops new connections to the second endpoint, as kube-proxy writes it.
fn drops_new() -> String {
    filter("forward", "ct state new jump service-endpoints-check")
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

fn alone(filter: &str) -> String {
    format!("table ip fw {{{filter}}}\n")
}

fn saved(attempts: &[Attempt]) -> bool {
    let saved = |one: &Attempt| one.verdict == Verdict::Connected && one.took > AGAIN;
    attempts.iter().any(saved)
}

// The router drops the packet before conntrack confirms the entry, so a random choice decides the
// next SYN again.
fn what_is_dropped_where_it_was_drawn_is_waited_for() {
    let router = table(EITHER, &filter("forward", "tcp dport 9999 drop"));
    let attempts = Lab::native(router, "").is_waited_for();
    assert!(saved(&attempts), "{attempts:#?}");
}

// The router's conntrack entry with the choice is confirmed.
fn what_is_dropped_behind_where_it_was_drawn_is_settled() {
    let server = alone(&filter("input", "tcp dport 9999 drop"));
    let lab = Lab::native(table(EITHER, &drops_nothing()), &server);
    lab.is_settled(&[Verdict::Connected, Verdict::Timeout]);
}

/// Returns the same chain, which matches no endpoint.
fn drops_nothing() -> String {
    drops_new().replace("9999", "9998")
}

// As kube-proxy v1.36 writes it.
fn what_a_map_sends_there_or_there_is_waited_for() {
    let map = "meta l4proto tcp dnat ip addr . port to numgen random mod 2 map { 0 : 10.0.2.2 . \
               8080, 1 : 10.0.2.2 . 9999 }";
    let router = table(map, &filter("forward", "tcp dport 9999 drop"));
    let attempts = Lab::native(router, "").is_waited_for();
    assert!(saved(&attempts), "{attempts:#?}");
}

fn what_an_entry_drops_is_settled() {
    Lab::native(table(OTHER, &drops_new()), "").is_settled(&[Verdict::Timeout]);
}

// The retransmitted SYN belongs to an answered connection, so its conntrack state is no longer new.
fn an_answer_that_is_dropped_is_settled() {
    let drops = alone(&filter("forward", "ip saddr 10.0.2.2 tcp sport 9999 drop"));
    let router = table(EITHER, &drops_nothing()) + &drops;
    Lab::native(router, "").is_settled(&[Verdict::Connected, Verdict::Timeout]);
}

// The first SYN is new and gets the mark. The retransmission belongs to an answered connection and
// does not.
fn what_waits_for_an_answer_before_it_is_marked_is_waited_for() {
    let marks = filter("forward", "ct state new meta mark set 0x1")
        + &filter("postrouting", "ip saddr 10.0.2.2 tcp sport 9999 drop");
    let lab = Lab::native(table(OTHER, &marks), "");
    lab.is_waited_for();
}

fn what_a_draw_drops_is_waited_for() {
    let draws = filter("forward", "tcp dport 9999 numgen random mod 2 0 drop");
    let attempts = Lab::native(table(OTHER, &draws), "").is_waited_for();
    assert!(saved(&attempts), "{attempts:#?}");
}

// As with session affinity, the second packet matches the entry that the first one added.
fn who_is_remembered_by_a_set_is_waited_for() {
    let remembers = "\n\tset seen {\n\t\ttype ipv4_addr . inet_service\n\t\tsize 65535\n\
                     \t\tflags dynamic,timeout\n\t\ttimeout 1m\n\t}\n"
        .to_owned()
        + &filter(
            "forward",
            "tcp dport 9999 ip saddr . tcp sport @seen accept\n\
             \t\ttcp dport 9999 update @seen { ip saddr . tcp sport } drop",
        );
    let attempts = Lab::native(table(OTHER, &remembers), "").is_waited_for();
    assert!(saved(&attempts), "{attempts:#?}");
}

// The kernel limits ICMP errors per second: the next SYN may get an error.
fn what_is_refused_without_a_word_is_waited_for() {
    let refuses =
        filter("forward", "tcp dport 9999 reject") + &filter("output", "meta l4proto icmp drop");
    Lab::native(table(OTHER, &refuses), "").is_waited_for();
}
