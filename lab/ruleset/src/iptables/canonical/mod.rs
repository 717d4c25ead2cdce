//! Renders each rule in one canonical form, so that equivalent rules have equal texts. The form
//! includes the changes of iptables between restore and save, and omits explicit defaults.
//! `tests/host/rule_forms.rs` compares it with what iptables makes of the same rules.

mod matches;
mod targets;
mod values;

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::parts::{RuleOption, RuleParts};
use super::words::quote_into;
use crate::network::format_network;
use matches::canonical_match_option;
use targets::canonical_target_options;
use values::{protocol_name, with_value};

/// Renders the canonical text of a rule.
pub(super) fn render(rule: &RuleParts<'_>) -> String {
    let mut words = String::new();

    let mut header: Vec<RuleOption<'_>> = rule
        .header
        .iter()
        .filter_map(canonical_header_option)
        .collect();
    header.sort_by_key(|choice| header_rank(&choice.name));
    for choice in &header {
        push_option(&mut words, choice);
    }

    for module in &rule.matches {
        let mut choices: Vec<RuleOption<'_>> = module
            .options
            .iter()
            .filter_map(|choice| canonical_match_option(&module.name, choice))
            .collect();
        // The options of `policy` describe one policy up to `--next`.
        if module.name != "policy" {
            choices.sort();
        }
        let is_redundant = matches!(module.name.as_ref(), "tcp" | "udp" | "sctp" | "comment")
            && choices.is_empty();
        if !is_redundant {
            push_word(&mut words, "-m");
            push_word(&mut words, &module.name);
            for choice in &choices {
                push_option(&mut words, choice);
            }
        }
    }

    if let Some(target) = &rule.target {
        push_word(&mut words, if target.is_goto { "-g" } else { "-j" });
        push_word(&mut words, &target.name);
        let mut choices: Vec<RuleOption<'_>> = target
            .options
            .iter()
            .flat_map(|choice| canonical_target_options(&target.name, choice))
            .collect();
        choices.sort();
        for choice in &choices {
            push_option(&mut words, choice);
        }
    }
    words
}

fn push_option(words: &mut String, choice: &RuleOption<'_>) {
    if choice.is_negated {
        words.push_str(if words.is_empty() { "!" } else { " !" });
    }
    // The option was not quoted. Quotes would turn it into a value.
    if !words.is_empty() {
        words.push(' ');
    }
    words.push_str(&choice.name);
    for value in &choice.values {
        push_word(words, value);
    }
}

fn push_word(words: &mut String, word: &str) {
    if !words.is_empty() {
        words.push(' ');
    }
    quote_into(words, word);
}

fn header_rank(name: &str) -> usize {
    let order = ["-s", "-d", "-i", "-o", "-p", "-f"];
    order.iter().position(|known| *known == name).unwrap_or(6)
}

fn canonical_header_option<'r>(choice: &RuleOption<'r>) -> Option<RuleOption<'r>> {
    let value = choice.values.first().map(AsRef::as_ref);
    match (choice.name.as_ref(), value) {
        ("-s" | "-d", Some(text)) => {
            let Some(network) = parse_network(text) else {
                return Some(choice.clone());
            };
            let everything = network.prefix() == 0 && !choice.is_negated;
            (!everything).then(|| with_value(choice, format_network(network)))
        }
        ("-p", Some(text)) => {
            let name = protocol_name(text);
            (name != "all").then(|| with_value(choice, name))
        }
        ("-i" | "-o", Some("+")) if !choice.is_negated => None,
        _ => Some(choice.clone()),
    }
}

/// Parses a network with a prefix length, a dotted mask or no mask.
fn parse_network(text: &str) -> Option<IpNetwork> {
    let (ip, mask) = match text.split_once('/') {
        Some((ip, mask)) => (ip, Some(mask)),
        None => (text, None),
    };
    // iptables adds the missing numbers of `10/8`.
    let numbers = ip.split('.').count();
    let is_short = numbers < 4 && ip.split('.').all(|part| part.parse::<u8>().is_ok());
    let ip: IpAddr = if is_short {
        format!("{ip}{}", ".0".repeat(4 - numbers)).parse().ok()?
    } else {
        ip.parse().ok()?
    };
    match mask {
        None => Some(IpNetwork::from(ip)),
        Some(mask) => match mask.parse::<u8>() {
            Ok(prefix) => IpNetwork::new(ip, prefix).ok(),
            Err(_) => IpNetwork::with_netmask(ip, mask.parse().ok()?).ok(),
        },
    }
}

#[cfg(test)]
mod tests {
    use crate::iptables::Rule;

    fn text(rule: &str) -> String {
        Rule::parse(&format!("-A X {rule}"))
            .unwrap()
            .1
            .canonical_text()
    }

    /// Pairs of input for iptables-restore 1.8.9 and the output of iptables-save.
    #[test]
    fn canonical_text_of_input_and_output_is_equal() {
        for (input, output) in [
            (
                "-m comment --comment \"ns/svc:p cluster IP\" -m tcp -p tcp -d 10.0.0.1 --dport 80 ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ",
                "! -s 10.244.0.0/16 -d 10.0.0.1/32 -p tcp -m comment --comment \"ns/svc:p cluster IP\" -m tcp --dport 80 -j KUBE-MARK-MASQ",
            ),
            (
                "-j MARK --or-mark 0x00004000",
                "-j MARK --set-xmark 0x4000/0x4000",
            ),
            (
                "-j MARK --xor-mark 0x00004000",
                "-j MARK --set-xmark 0x4000/0x0",
            ),
            (
                "-m mark --mark 0x00004000/0x00004000 -j ACCEPT",
                "-m mark --mark 0x4000/0x4000 -j ACCEPT",
            ),
            (
                "-m statistic --mode random --probability 0.3333333333 -j Y",
                "-m statistic --mode random --probability 0.33333333349 -j Y",
            ),
            (
                "-m recent --name N --rcheck --seconds 10800 --reap -j Y",
                "-m recent --rcheck --seconds 10800 --reap --name N --mask 255.255.255.255 --rsource -j Y",
            ),
            (
                "-m tcp -p tcp -j DNAT --to-destination 10.244.1.5:8080",
                "-p tcp -m tcp -j DNAT --to-destination 10.244.1.5:8080",
            ),
            (
                "-p udp --dport 53 -j REJECT",
                "-p udp -m udp --dport 53 -j REJECT --reject-with icmp-port-unreachable",
            ),
            (
                "-m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
                "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            ),
            ("-s 10.1.2.3/255.255.0.0", "-s 10.1.0.0/16"),
            (
                "-p tcp --syn --destination-port https -j ACCEPT",
                "-p tcp -m tcp --dport 443 --tcp-flags FIN,SYN,RST,ACK SYN -j ACCEPT",
            ),
            (
                "-m limit --limit 60/hour -j ACCEPT",
                "-m limit --limit 1/min -j ACCEPT",
            ),
            (
                "-m limit --limit 7/m -j ACCEPT",
                "-m limit --limit 7/min -j ACCEPT",
            ),
            (
                "-j CONNMARK --restore-mark --mask 0xff",
                "-j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff",
            ),
            ("-j LOG --log-level warning", "-j LOG"),
            (
                "-m dscp --dscp-class AF21 -j ACCEPT",
                "-m dscp --dscp 0x12 -j ACCEPT",
            ),
            (
                "-s 10.0.0.1 -m ipvs --vaddr 10.0.0.1 --vproto tcp --vport 80 -j DROP",
                "-s 10.0.0.1/32 -m ipvs --vproto 6 --vaddr 10.0.0.1 --vport 80 -j DROP",
            ),
        ] {
            assert_eq!(text(input), text(output));
        }
    }

    #[test]
    fn canonical_text_of_different_rules_differs() {
        for (left, right) in [
            ("-s 10.0.0.0/8 -j Y", "! -s 10.0.0.0/8 -j Y"),
            ("-j Y", "-g Y"),
            (
                "-p tcp -m tcp --dport 80 -j Y",
                "-p tcp -m tcp --sport 80 -j Y",
            ),
            ("-j MARK --or-mark 0x4000", "-j MARK --xor-mark 0x4000"),
            ("-j MASQUERADE", "-j MASQUERADE --random-fully"),
            (
                "-m statistic --mode random --probability 0.33333",
                "-m statistic --mode random --probability 0.3333333333",
            ),
            ("-m comment --comment a -j Y", "-m comment --comment b -j Y"),
            (
                "-m policy --dir in --pol ipsec --strict --reqid 1 --mode tunnel --next --reqid 2 --mode transport -j Y",
                "-m policy --dir in --pol ipsec --strict --reqid 1 --mode transport --next --reqid 2 --mode tunnel -j Y",
            ),
            ("-j REJECT", "-j REJECT --reject-with tcp-reset"),
            ("-p tcp --syn -j Y", "-p tcp ! --syn -j Y"),
            ("-m limit --limit 5/min -j Y", "-m limit --limit 6/min -j Y"),
            (
                "-m limit --limit 5/nothing -j Y",
                "-m limit --limit 6/nothing -j Y",
            ),
            ("-j CONNMARK --save-mark", "-j CONNMARK --restore-mark"),
            ("-j Y", ""),
        ] {
            assert_ne!(text(left), text(right));
        }
    }
}
