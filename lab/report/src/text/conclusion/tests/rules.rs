//! Tests sentences about rules that dropped packets.

use super::{lost, render, rule};
use svclab_judge::{Cause, RuleReference};

#[test]
fn facts_losses_by_rules_name_earlier_rules() {
    let drop = RuleReference {
        chain: "DENIED".to_owned(),
        rule: Some("-j DROP".to_owned()),
        target: Some("DROP".to_owned()),
        ..rule()
    };
    let jump = RuleReference {
        rule: Some("-s 10.0.0.0/8 -j DENIED".to_owned()),
        target: Some("DENIED".to_owned()),
        ..rule()
    };
    let allow = RuleReference {
        number: Some(1),
        rule: Some("-s 192.168.0.0/16 -j RETURN".to_owned()),
        ..drop.clone()
    };
    let by_rule = |marked_by, sent_by, unmatched| {
        let rule = drop.clone();
        lost(
            None,
            Cause::Rule {
                rule,
                marked_by,
                sent_by,
                unmatched,
            },
        )
    };
    insta::assert_snapshot!(render([
        by_rule(None, None, Vec::new()),
        by_rule(Some(Box::new(rule())), None, Vec::new()),
        by_rule(None, Some(Box::new(jump)), vec![allow]),
    ]));
}
