//! Loads rules in the forms in which people write them, and compares the rules that iptables saves
//! with the input: the canonical form knows what iptables changes.

use std::fmt::Write as _;

use svclab_dump::compare::iptables::{Order, compare};
use svclab_model::plan::{Backend, Iptables, Namespace, Plan};
use svclab_ruleset::input::Input;
use svclab_ruleset::iptables::IptablesRules;
use svclab_ruleset::iptables::script::IptablesScript;
use svclab_test_support::programs::with_agent;

/// Rules by table and chain. Matches and targets that a user namespace rejects are missing: owner,
/// rpfilter, CT, CLASSIFY and TPROXY.
const FORMS: [(&str, &str, &str); 4] = [
    (
        "filter",
        "INPUT",
        r#"
-p tcp --syn -j ACCEPT
-p tcp ! --syn -j ACCEPT
-p tcp --tcp-flags ALL NONE -j DROP
-p tcp --tcp-flags ACK,SYN SYN -j DROP
-p tcp --destination-port 80 -j ACCEPT
-p tcp --source-port 80:90 -j ACCEPT
-p tcp --dport http -j ACCEPT
-p tcp --dport :1024 -j ACCEPT
-p tcp --sport 1024: -j ACCEPT
-p tcp --dport 80:80 -j ACCEPT
-p udp -m udp --sport domain -j ACCEPT
-p sctp --dport 80 -j ACCEPT
-p tcp -m multiport --destination-ports http,443 -j ACCEPT
-p tcp -m multiport --source-ports 1:5,9 -j ACCEPT
-p tcp -m multiport --ports 1:5,9 -j ACCEPT
--source 10.0.0.1 --destination 10.0.0.2 --in-interface eth0 --protocol tcp --jump ACCEPT
-p icmp --icmp-type echo-request -j ACCEPT
-p icmp --icmp-type fragmentation-needed -j ACCEPT
-p icmp --icmp-type any -j ACCEPT
-m limit --limit 5/min -j ACCEPT
-m limit --limit 5/second --limit-burst 5 -j ACCEPT
-m limit --limit 60/hour -j ACCEPT
-m limit --limit 7/m -j ACCEPT
-m limit --limit 100/day -j ACCEPT
-m limit --limit 120/min --limit-burst 7 -j ACCEPT
-m hashlimit --hashlimit-above 10/sec --hashlimit-name x --hashlimit-mode srcip -j DROP
-j LOG
-j LOG --log-prefix "a b" --log-level info
-j LOG --log-level warning
-j LOG --log-level 4
-j REJECT
-j REJECT --reject-with port-unreach
-j REJECT --reject-with host-prohib
-p tcp -j REJECT --reject-with tcp-rst
-m connmark --mark 1 -j ACCEPT
-m mark --mark 1/1 -j ACCEPT
-m state --state NEW,INVALID -j ACCEPT
-m conntrack --ctstate NEW,UNTRACKED,DNAT -j ACCEPT
-m conntrack --ctstate new,established -j ACCEPT
-m conntrack --ctproto tcp --ctorigdst 10.0.0.1 -j ACCEPT
-m addrtype --dst-type local -j ACCEPT
-m iprange --src-range 10.0.0.1-10.0.0.9 -j ACCEPT
-m recent --set --name x -j ACCEPT
-m recent --update --seconds 10 --hitcount 3 --name x --rdest -j ACCEPT
-m time --timestart 01:00 --timestop 02:00 -j ACCEPT
-m tos --tos 0x10 -j ACCEPT
-m dscp --dscp-class EF -j ACCEPT
-m dscp --dscp-class AF21 -j ACCEPT
-m dscp --dscp 8 -j ACCEPT
-m string --string abc --algo bm -j DROP
-m connlimit --connlimit-above 10 -j DROP
-p tcp -m tcpmss --mss 500:600 -j ACCEPT
-p 6 -j ACCEPT
-p ALL -j ACCEPT
-s 0/0 -j ACCEPT
-s 10/8 -j ACCEPT
-d 172.16/12 -j ACCEPT
-s 10.0.0.5/255.0.0.0 -j ACCEPT
! -i eth0 -j ACCEPT
-i + -j ACCEPT
-f -j ACCEPT
-j NFQUEUE
"#,
    ),
    (
        "mangle",
        "PREROUTING",
        r"
-j MARK --set-mark 1
-j MARK --set-mark 1/3
-j MARK --or-mark 1
-j MARK --xor-mark 1
-j MARK --and-mark 1
-j MARK --set-xmark 1
-j CONNMARK --save-mark
-j CONNMARK --restore-mark
-j CONNMARK --restore-mark --mask 0xff
-j CONNMARK --save-mark --nfmask 0xf --ctmask 0xf
-j CONNMARK --set-mark 5
-j CONNMARK --set-mark 5/2
-j CONNMARK --and-mark 5
-j CONNMARK --or-mark 5
-j CONNMARK --set-xmark 5/7
-j TOS --set-tos 0x10
-j DSCP --set-dscp-class CS3
-j DSCP --set-dscp 46
-p tcp --syn -j TCPMSS --set-mss 1400
",
    ),
    (
        "nat",
        "PREROUTING",
        r"
-p tcp -j DNAT --to-destination 10.0.0.1:80
-p tcp -j DNAT --to 10.0.0.1
-p tcp -j REDIRECT --to-port 8080
-p tcp -j REDIRECT
",
    ),
    (
        "nat",
        "POSTROUTING",
        r"
-j MASQUERADE
-p tcp -j MASQUERADE --to-ports 1024-2048
-j SNAT --to 10.0.0.1-10.0.0.4 --persistent
",
    ),
];

fn script() -> String {
    let mut script = String::new();
    for (table, chain, rules) in FORMS {
        let rules = rules
            .trim()
            .lines()
            .map(|rule| format!("-A {chain} {rule}\n"));
        let _ = write!(script, "*{table}\n{}COMMIT\n", rules.collect::<String>());
    }
    script
}

fn assert_forms_are_equal(backend: Backend) {
    let v4: Input<IptablesScript> = Input::from_text(script());
    let written = IptablesRules::from_script(v4.state().expect("a script")).expect("rules");
    let plan = Plan {
        namespaces: vec![Namespace {
            name: "node-1".to_owned(),
            iptables: Some(Iptables {
                backend,
                v4,
                v6: Input::default(),
            }),
            ..Namespace::default()
        }],
        ..Plan::default()
    };
    let program = format!("iptables-{}-save", backend.name());
    let saved = with_agent(async |agent| {
        let mut session = agent.build(plan).await?;
        let mut saved = String::new();
        // Without root, the legacy program cannot list the tables.
        for table in &written.tables {
            let name = table.table.to_string();
            let output = session.run("node-1", &program, &["-t", &name], "").await?;
            assert!(output.success, "{}", output.stderr);
            saved += &output.stdout;
        }
        session.remove().await?;
        Ok(saved)
    });
    let saved = IptablesRules::parse(&saved.expect("the rules load")).expect("valid output");
    assert_eq!(compare(&written, &saved, Order::Strict), []);
}

#[test]
fn rules_in_many_forms_equal_saved_rules() {
    for backend in [Backend::Nft, Backend::Legacy] {
        assert_forms_are_equal(backend);
    }
}
