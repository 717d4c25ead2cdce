//! Changes nftables tables of a running lab, and compares the tables of the kernel with the wanted
//! ones.

use svclab_dump::compare::nft::compare;
use svclab_model::plan::{Namespace, Plan};
use svclab_planner::delta::diff;
use svclab_ruleset::input::Input;
use svclab_ruleset::nft;
use svclab_test_support::programs::with_agent;

/// Tables of which each differs from the others in a property that a change must respect.
const STATES: [&str; 9] = [
    // A map refers to chains, and a chain to another.
    "table ip t {
	map m {
		type inet_service : verdict
		elements = { 80 : goto a, 81 : drop }
	}

	chain a {
		jump b
	}

	chain b {
		counter accept
	}

	chain in {
		type filter hook input priority 0; policy accept;
		tcp dport vmap @m
	}
}
",
    // Other chains and values; the map and the hook remain.
    "table ip t {
	map m {
		type inet_service : verdict
		elements = { 80 : goto c, 81 : drop, 82 : goto a }
	}

	chain a {
		accept
	}

	chain c {
		jump a
	}

	chain in {
		type filter hook input priority 0; policy drop;
		tcp dport vmap @m
		ip saddr 10.0.0.1 accept
		ip saddr 10.0.0.1 accept
	}
}
",
    // Neither the map nor its chains.
    "table ip t {

	chain in {
		type filter hook input priority 0; policy drop;
		ip saddr 10.0.0.1 accept
	}
}
",
    // Sets of all kinds.
    "table ip t {
	set plain {
		type ipv4_addr . inet_service
		elements = { 10.0.0.1 . 80, 10.0.0.2 . 80 comment \"x\" }
	}

	set ranges {
		type ipv4_addr
		flags interval
		elements = { 10.0.0.0/24, 10.0.2.0/24 }
	}

	set merged {
		type ipv4_addr
		flags interval
		auto-merge
		elements = { 10.0.0.0/16 }
	}

	set fixed {
		type ipv4_addr
		flags constant
		elements = { 10.0.0.1 }
	}

	set filled {
		type ipv4_addr
		size 100
		flags dynamic,timeout
		timeout 1h
	}

	chain in {
		type filter hook input priority 0; policy drop;
		ip saddr @ranges accept
		ip saddr @merged accept
		ip saddr @fixed accept
		update @filled { ip saddr } accept
	}
}
",
    // Fewer elements, one with another comment.
    "table ip t {
	set plain {
		type ipv4_addr . inet_service
		elements = { 10.0.0.2 . 80 comment \"y\" }
	}

	set ranges {
		type ipv4_addr
		flags interval
		elements = { 10.0.0.0/25 }
	}

	chain in {
		type filter hook input priority 0; policy drop;
		ip saddr @ranges accept
	}
}
",
    // Another chain of the same hook, and a counter.
    "table ip t {
	counter c {
		packets 0 bytes 0
	}

	chain first {
		type filter hook input priority 0; policy accept;
		counter name \"c\" meta mark 0x00000001 accept
	}

	chain in {
		type filter hook input priority 0; policy drop;
		ip saddr 10.0.0.1 accept
	}
}
",
    "table ip t {
	flags dormant

	chain in {
		type filter hook input priority 0; policy drop;
	}
}
",
    // Two tables.
    "table inet u {

	chain in {
		type filter hook input priority 0; policy accept;
	}
}
table ip t {

	chain in {
		type filter hook input priority 0; policy drop;
		ip saddr 10.0.0.1 accept
	}
}
",
    "",
];

#[test]
fn change_of_tables_gives_wanted_tables() {
    let plan = |state: &str| Plan {
        namespaces: vec![Namespace {
            name: "node-1".to_owned(),
            nft: Input::from_text(state),
            ..Namespace::default()
        }],
        ..Plan::default()
    };
    let pairs = |count: usize| {
        let each = move |first| (0..count).flat_map(move |second| [first, second]);
        (0..count).flat_map(each)
    };
    with_agent(async |agent| {
        let mut current = plan("");
        let mut session = agent.build_changeable(current.clone()).await?;
        for index in pairs(STATES.len()) {
            let wanted = plan(STATES[index]);
            let delta = diff(&current, &wanted).expect("a change of the running lab");
            session.change(delta).await?;
            let arguments = ["-s", "list", "ruleset"];
            let listed = session.run("node-1", "nft", &arguments, "").await?;
            assert!(listed.success, "{}", listed.stderr);
            let listed = nft::parse(&listed.stdout).expect("valid output");
            let wanted_tables = nft::parse(STATES[index]).expect("valid tables");
            assert_eq!(compare(&wanted_tables, &listed), [], "{listed}");
            current = wanted;
        }
        session.remove().await
    })
    .expect("every state loads");
}
