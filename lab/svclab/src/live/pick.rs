//! Selects one of the running labs by name.

use svclab_report::ps::LabInfo;

/// Error of selecting a running lab.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PickError {
    #[error("no lab is running; start one with `svclab up LAB/CASE`")]
    None,
    #[error("{name} is not running; running labs: {}", up.join(", "))]
    Unknown { name: String, up: Vec<String> },
    #[error("{}; select one with {with}: {}", describe_ambiguous(name.as_deref()), up.join(" "))]
    Ambiguous {
        name: Option<String>,
        /// Argument that selects a lab, such as `--lab`.
        with: &'static str,
        up: Vec<String>,
    },
}

fn describe_ambiguous(name: Option<&str>) -> String {
    match name {
        Some(name) => format!("several running labs match {name}"),
        None => "several labs are running".to_owned(),
    }
}

/// Returns the index of the lab with this name. The name is a case, a lab, or a lab with some of
/// the case's values, in the format of `run`. Without a name, returns the only lab. `with` is the
/// argument to recommend in an error.
pub(crate) fn pick_lab(
    labs: &[LabInfo],
    name: Option<&str>,
    with: &'static str,
) -> Result<usize, PickError> {
    if labs.is_empty() {
        return Err(PickError::None);
    }
    let names = |indices: &[usize]| indices.iter().map(|at| labs[*at].case.clone()).collect();
    let indices: Vec<usize> = (0..labs.len()).collect();
    let Some(name) = name else {
        return match indices.as_slice() {
            [one] => Ok(*one),
            _ => Err(PickError::Ambiguous {
                name: None,
                with,
                up: names(&indices),
            }),
        };
    };
    let exact = labs
        .iter()
        .position(|lab| lab.case == name || lab.named == name);
    if let Some(exact) = exact {
        return Ok(exact);
    }
    let matching: Vec<usize> = indices
        .iter()
        .copied()
        .filter(|at| is_match(&labs[*at], name))
        .collect();
    match matching.as_slice() {
        [one] => Ok(*one),
        [] => Err(PickError::Unknown {
            name: name.to_owned(),
            up: names(&indices),
        }),
        _ => Err(PickError::Ambiguous {
            name: Some(name.to_owned()),
            with,
            up: names(&matching),
        }),
    }
}

fn is_match(lab: &LabInfo, name: &str) -> bool {
    let values = |case: &str| -> Vec<String> { case.split(',').map(str::to_owned).collect() };
    let case_values = lab.case.strip_prefix(&lab.lab).unwrap_or_default();
    let case_values = values(case_values.trim_start_matches('/'));
    [lab.lab.as_str(), lab.named_lab()]
        .into_iter()
        .any(|known| {
            name == known
                || name
                    .strip_prefix(known)
                    .and_then(|rest| rest.strip_prefix('/'))
                    .is_some_and(|some| {
                        values(some).iter().all(|value| case_values.contains(value))
                    })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::State;

    fn lab(case: &str, named: &str) -> LabInfo {
        LabInfo {
            case: case.to_owned(),
            lab: case.split('/').next().unwrap().to_owned(),
            named: named.to_owned(),
            state: State::Running,
            kernel: None,
            guest: false,
            since: String::new(),
            namespaces: Vec::new(),
            daemon_pid: 1,
            svclab: String::new(),
        }
    }

    fn labs() -> Vec<LabInfo> {
        vec![
            lab("a/x=1,y=1", "a/x=1,y=1"),
            lab("a/x=1,y=2", "a/x=1,y=2"),
            lab("b", "dir/b.yaml"),
        ]
    }

    #[test]
    fn pick_partial_name_returns_lab() {
        let pick = |name: &str| pick_lab(&labs(), Some(name), "--lab");
        for (name, at) in [
            ("a/x=1,y=1", 0),
            ("a/y=2", 1),
            ("a/y=2,x=1", 1),
            ("b", 2),
            ("dir/b.yaml", 2),
        ] {
            assert_eq!(pick(name), Ok(at), "{name}");
        }
    }

    #[test]
    fn pick_unknown_name_error_lists_labs() {
        let error =
            |labs: &[LabInfo], name: Option<&str>| pick_lab(labs, name, "--lab").unwrap_err();
        insta::assert_snapshot!(error(&[], None), @"no lab is running; start one with `svclab up LAB/CASE`");
        insta::assert_snapshot!(error(&labs(), None), @"several labs are running; select one with --lab: a/x=1,y=1 a/x=1,y=2 b");
        insta::assert_snapshot!(error(&labs(), Some("a")), @"several running labs match a; select one with --lab: a/x=1,y=1 a/x=1,y=2");
        insta::assert_snapshot!(error(&labs(), Some("a/x=2")), @"a/x=2 is not running; running labs: a/x=1,y=1, a/x=1,y=2, b");
        insta::assert_snapshot!(error(&labs()[2..], Some("c")), @"c is not running; running labs: b");
    }
}
