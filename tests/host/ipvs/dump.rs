//! Tests that the output of `ipvsadm -Sn` with every option is parsed, and is the same after
//! `ipvsadm` loads it again.

use svclab_dump::{File, NodeDump, compare};
use svclab_model::plan::{Namespace, Plan};
use svclab_ruleset::tool::Format;
use svclab_test_support::block_on;

use super::programs::{guest_with_ipvsadm, run_program};

const SERVERS: &str = "\
-A -t 10.96.0.1:80 -s sh -b sh-port,sh-fallback -p 300 -M 255.255.255.0
-a -t 10.96.0.1:80 -r 10.0.1.5:80 -i -w 3 --tun-type gue --tun-port 6080 --tun-nocsum
-a -t 10.96.0.1:80 -r 10.0.1.6:80 -i -w 1 --tun-type ipip
-a -t 10.96.0.1:80 -r 10.0.1.7:80 -g -w 0
-A -u 10.96.0.2:53 -s rr -o
-a -u 10.96.0.2:53 -r 10.0.1.3:5353 -m -w 1
-A -t [fd00:96::1]:443 -s mh -p 60 -M 64
-a -t [fd00:96::1]:443 -r [fd00:1::2]:6443 -m -w 2
-A --sctp-service 10.96.0.3:99 -s wlc
-A -f 5 -s rr -p 10
-a -f 5 -r 10.0.1.1:0 -g -w 1
-A -f 6 -6 -s wrr
-a -f 6 -6 -r [fd00:1::1]:0 -g -w 1
";

fn parse(text: &str) -> NodeDump {
    let read = NodeDump::parse(vec![File {
        name: "ipvsadm-Sn".to_owned(),
        format: Some(Format::VirtualServers),
        text: text.to_owned(),
    }]);
    assert!(
        read.diagnostics.is_empty(),
        "{:?}\n{text}",
        read.diagnostics
    );
    read.dump
}

#[test]
fn ipvsadm_output_restored_is_equal() {
    let namespace = |name: &str| Namespace {
        name: name.to_owned(),
        ..Namespace::default()
    };
    let plan = Plan {
        namespaces: vec![namespace("first"), namespace("second")],
        ..Plan::default()
    };
    block_on(async {
        let agent = guest_with_ipvsadm().await;
        let mut session = agent.build(plan).await.expect("a lab");
        let mut texts = vec![SERVERS.to_owned()];
        for namespace in ["first", "second"] {
            let given = texts.last().cloned().unwrap_or_default();
            run_program(&mut session, namespace, "ipvsadm", &["-R"], &given).await;
            texts.push(run_program(&mut session, namespace, "ipvsadm", &["-S", "-n"], "").await);
        }
        let [given, first, second] = &texts[..] else {
            panic!("three texts");
        };
        let differences = compare(&parse(given), &parse(first));
        assert!(differences.is_empty(), "{differences:?}\n{first}");
        assert_eq!(first, second);
    });
}
