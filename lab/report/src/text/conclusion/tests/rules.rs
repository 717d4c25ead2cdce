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
    let by_rule = |marked_by, sent_by| {
        let rule = drop.clone();
        lost(
            None,
            Cause::Rule {
                rule,
                marked_by,
                sent_by,
            },
        )
    };
    insta::assert_snapshot!(render([
        by_rule(None, None),
        by_rule(Some(Box::new(rule())), None),
        by_rule(None, Some(Box::new(jump))),
    ]));
}
