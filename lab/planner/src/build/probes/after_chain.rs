//! Checks the order of probes that wait for each other.

use indexmap::IndexMap;

use crate::cluster::NameError;
use svclab_diagnostic::suggest::did_you_mean;
use svclab_scenario::lab;

/// Checks that the chain of `after` references ends, and that each refers to an existing probe.
pub(super) fn check_after_chain(
    probes: &IndexMap<String, lab::Probe>,
    name: &str,
    after: &str,
) -> Result<(), NameError> {
    let mut passed = vec![name];
    let mut next = Some(after);
    while let Some(before) = next {
        let Some(probe) = probes.get(before) else {
            return Err(NameError {
                message: format!("there is no probe `{before}`"),
                help: did_you_mean(before, probes.keys().map(String::as_str)),
            });
        };
        if passed.contains(&before) {
            let message = if before == name {
                format!("the probe `{name}` waits for itself")
            } else {
                format!("the probe `{name}` waits for `{before}`, which waits for itself")
            };
            return Err(NameError {
                message,
                help: None,
            });
        }
        passed.push(before);
        next = probe.after.as_deref();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_after_chain_cycle_names_its_first_probe() {
        let probe = |after: &str| lab::Probe {
            after: (!after.is_empty()).then(|| after.to_owned()),
            ..serde_json::from_value(serde_json::json!({"from": "a", "to": "b:80"})).unwrap()
        };
        let probes = [
            ("own", "own"),
            ("first", "one"),
            ("one", "two"),
            ("two", "one"),
            ("end", ""),
        ]
        .map(|(name, after)| (name.to_owned(), probe(after)));
        let probes = IndexMap::from(probes);
        let message =
            |name, after| check_after_chain(&probes, name, after).map_err(|error| error.message);
        assert_eq!(message("x", "end"), Ok(()));
        assert_eq!(
            message("own", "own").unwrap_err(),
            "the probe `own` waits for itself"
        );
        assert_eq!(
            message("first", "one").unwrap_err(),
            "the probe `first` waits for `one`, which waits for itself"
        );
    }
}
