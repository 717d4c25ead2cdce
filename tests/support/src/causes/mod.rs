//! Causes of the failed probes in the shipped labs. With a cause undone in an otherwise equal plan,
//! the probe connects. `svclab why` names the same causes as changes of the lab.

mod table;

use table::CAUSES;

pub struct Cause {
    lab: &'static str,
    /// Axis values of the cases with this cause; empty for all other cases of the lab.
    when: &'static [(&'static str, &'static [&'static str])],
    /// Probes that fail for this cause.
    probes: &'static [&'static str],
    /// Parts of the texts of fixes that `svclab why` must report, as the write-up found them.
    pub required: &'static [&'static str],
    /// Parts of the texts of fixes that `svclab why` may also report.
    pub allowed: &'static [&'static str],
    /// Changes that undo the cause: each list suffices, and its changes only work together. Empty
    /// if no probe times out.
    pub remedies: &'static [&'static [Undo]],
}

/// A change of a plan that undoes a cause.
#[derive(Debug, Clone, Copy)]
pub enum Undo {
    /// Removes a line from the rules of a namespace.
    WithoutLine {
        namespace: &'static str,
        line: &'static str,
    },
    /// Adds a line at the end of a table of a namespace.
    WithLine {
        namespace: &'static str,
        table: &'static str,
        line: &'static str,
    },
    /// Removes some words from a line.
    WithoutWords {
        namespace: &'static str,
        line: &'static str,
        words: &'static str,
    },
    /// Removes an entry from a set or map of kube-proxy's own nftables table.
    WithoutEntry {
        namespace: &'static str,
        set: &'static str,
        key: &'static str,
    },
    /// Appends a rule to a chain of kube-proxy's own nftables table.
    WithRule {
        namespace: &'static str,
        chain: &'static str,
        rule: &'static str,
    },
    /// Removes a real server from all virtual servers of the namespace.
    WithoutBackend {
        namespace: &'static str,
        to: &'static str,
    },
    /// Sets a sysctl on these nodes; a cluster sets it on all.
    WithSysctl {
        namespaces: &'static [&'static str],
        key: &'static str,
        value: &'static str,
    },
}

impl Undo {
    pub fn describe(self) -> String {
        match self {
            Self::WithoutLine { namespace, line } => format!("{namespace} without `{line}`"),
            Self::WithLine {
                namespace,
                table,
                line,
            } => format!("{namespace} with `{line}` in {table}"),
            Self::WithoutEntry {
                namespace,
                set,
                key,
            } => format!("{namespace} without {key} in {set}"),
            Self::WithRule {
                namespace,
                chain,
                rule,
            } => format!("{namespace} with `{rule}` in {chain}"),
            Self::WithoutBackend { namespace, to } => {
                format!("{namespace} without the backend {to}")
            }
            Self::WithoutWords {
                namespace,
                line,
                words,
            } => format!("{namespace}, `{line}` without `{words}`"),
            Self::WithSysctl {
                namespaces,
                key,
                value,
            } => format!("{} with {key} = {value}", namespaces.join(", ")),
        }
    }
}

/// Returns the first listed cause for a failed probe of a case, such as `lab/axis=value,axis=value`.
pub fn find_cause(case: &str, probe: &str) -> Option<&'static Cause> {
    let (lab, values) = case.split_once('/').unwrap_or((case, ""));
    let values: Vec<(&str, &str)> = values
        .split(',')
        .filter_map(|value| value.split_once('='))
        .collect();
    let has_value = |(axis, accepted): &(&str, &[&str])| {
        let mut values = values.iter().filter(|(name, _)| name == axis);
        values.any(|(_, value)| accepted.contains(value))
    };
    CAUSES.iter().find(|cause| {
        cause.lab == lab && cause.probes.contains(&probe) && cause.when.iter().all(has_value)
    })
}
