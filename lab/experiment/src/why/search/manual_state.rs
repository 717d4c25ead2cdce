//! Combines a change of the lab with the state that manual commands left on its nodes.

use super::restorations::build;
use crate::bisect::{Difference, DifferenceMask, Pair};
use svclab_model::plan::Plan;

/// Makes the changes between two plans of a lab, `before` and `after`, in the plan `frozen` of the same
/// lab, which has the state that manual commands left. The error states why this is not possible.
pub(super) fn change_frozen(before: &Plan, after: &Plan, frozen: &Plan) -> Result<Plan, String> {
    let pair = |good, bad| Pair::new(good, bad).map_err(|error| error.to_string());
    let made: Vec<Difference> = describe(&pair(before, after)?).concat();
    let is_made = |own: &Difference| {
        let mut made = made.iter();
        made.any(|made| made.place() == own.place() && made.kind == own.kind && made.bad == own.bad)
    };
    let both = pair(frozen, after)?;
    let mut mask: DifferenceMask = Vec::new();
    for group in describe(&both) {
        let count = group.iter().filter(|own| is_made(own)).count();
        if count > 0 && count < group.len() {
            let place = group.first().map(Difference::place).unwrap_or_default();
            return Err(format!("manual commands changed the same objects: {place}"));
        }
        mask.push(count > 0);
    }
    let mut changed = build(&both, after, &mask);
    // Only those whose changes the state does not contain.
    changed.commands.clone_from(&frozen.commands);
    Ok(changed)
}

fn describe(pair: &Pair) -> Vec<Vec<Difference>> {
    let indices: Vec<usize> = (0..pair.len()).collect();
    pair.describe(&indices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::plan::{Namespace, Sysctl};

    fn plan(sysctls: &[(&str, &str)]) -> Plan {
        let sysctl = |(key, value): &(&str, &str)| Sysctl {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
            link: None,
            optional: false,
        };
        Plan {
            namespaces: vec![Namespace {
                name: "node-1".to_owned(),
                sysctls: sysctls.iter().map(sysctl).collect(),
                ..Namespace::default()
            }],
            ..Plan::default()
        }
    }

    #[test]
    fn change_frozen_keeps_manual_state() {
        let before = plan(&[("net.a", "0"), ("net.b", "0"), ("net.c", "0")]);
        let after = plan(&[("net.a", "1"), ("net.b", "0"), ("net.c", "1")]);
        let frozen = plan(&[("net.a", "0"), ("net.b", "5"), ("net.c", "7")]);
        let changed = change_frozen(&before, &after, &frozen).expect("a plan");
        let values = changed.namespaces[0].sysctls.iter();
        let mut values: Vec<_> = values.map(|own| (&*own.key, &*own.value)).collect();
        values.sort_unstable();
        assert_eq!(values, [("net.a", "1"), ("net.b", "5"), ("net.c", "1")]);
    }
}
