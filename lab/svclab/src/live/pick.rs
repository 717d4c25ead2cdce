//! Selects one of the running labs by name.

use svclab_report::ps::About;

/// Error of selecting a running lab.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PickError {
    /// No lab is running.
    #[error("no lab stands; `svclab up LAB/CASE` builds one")]
    None,
    /// No running lab has this name.
    #[error("{name} is not up; there {}", these(up))]
    Unknown {
        /// Name from the user.
        name: String,
        /// Cases of the running labs.
        up: Vec<String>,
    },
    /// Several running labs match.
    #[error("{}; say with {with} which is meant: {}", several(name.as_deref()), up.join(" "))]
    Several {
        /// Name from the user.
        name: Option<String>,
        /// Argument that selects a lab, such as `--lab`.
        with: &'static str,
        /// Cases of the labs that match.
        up: Vec<String>,
    },
}

fn these(up: &[String]) -> String {
    match up {
        [one] => format!("is {one}"),
        many => format!("are {}", many.join(", ")),
    }
}

fn several(name: Option<&str>) -> String {
    match name {
        Some(name) => format!("several labs that are up are called {name}"),
        None => "several labs are up".to_owned(),
    }
}

/// Returns the index of the lab with this name. The name is a case, a lab, or a lab with some of
/// the case's values, in the format of `run`. Without a name, returns the only lab. `with` is the
/// argument to recommend in an error.
///
/// # Errors
///
/// Returns an error if no lab or more than one lab matches.
pub fn pick(labs: &[About], name: Option<&str>, with: &'static str) -> Result<usize, PickError> {
    if labs.is_empty() {
        return Err(PickError::None);
    }
    let names = |at: &[usize]| at.iter().map(|at| labs[*at].case.clone()).collect();
    let all: Vec<usize> = (0..labs.len()).collect();
    let Some(name) = name else {
        return match all.as_slice() {
            [one] => Ok(*one),
            _ => Err(PickError::Several {
                name: None,
                with,
                up: names(&all),
            }),
        };
    };
    let exact = labs
        .iter()
        .position(|lab| lab.case == name || lab.named == name);
    if let Some(exact) = exact {
        return Ok(exact);
    }
    let meant: Vec<usize> = all
        .iter()
        .copied()
        .filter(|at| is_meant(&labs[*at], name))
        .collect();
    match meant.as_slice() {
        [one] => Ok(*one),
        [] => Err(PickError::Unknown {
            name: name.to_owned(),
            up: names(&all),
        }),
        _ => Err(PickError::Several {
            name: Some(name.to_owned()),
            with,
            up: names(&meant),
        }),
    }
}

fn is_meant(lab: &About, name: &str) -> bool {
    let values = |case: &str| -> Vec<String> { case.split(',').map(str::to_owned).collect() };
    let of_case = lab.case.strip_prefix(&lab.lab).unwrap_or_default();
    let of_case = values(of_case.trim_start_matches('/'));
    [lab.lab.as_str(), lab.named_lab()]
        .into_iter()
        .any(|known| {
            name == known
                || name
                    .strip_prefix(known)
                    .and_then(|rest| rest.strip_prefix('/'))
                    .is_some_and(|some| values(some).iter().all(|value| of_case.contains(value)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::State;

    fn lab(case: &str, named: &str) -> About {
        About {
            case: case.to_owned(),
            lab: case.split('/').next().unwrap().to_owned(),
            named: named.to_owned(),
            state: State::Standing,
            kernel: None,
            guest: false,
            since: String::new(),
            namespaces: Vec::new(),
            holder: 1,
            svclab: String::new(),
        }
    }

    fn labs() -> Vec<About> {
        vec![
            lab("a/x=1,y=1", "a/x=1,y=1"),
            lab("a/x=1,y=2", "a/x=1,y=2"),
            lab("b", "dir/b.yaml"),
        ]
    }

    #[test]
    fn a_lab_is_named_as_far_as_it_takes() {
        let pick = |name: &str| pick(&labs(), Some(name), "--lab");
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
    fn what_is_not_known_is_told_with_what_there_is() {
        let told = |labs: &[About], name: Option<&str>| pick(labs, name, "--lab").unwrap_err();
        insta::assert_snapshot!(told(&[], None), @"no lab stands; `svclab up LAB/CASE` builds one");
        insta::assert_snapshot!(told(&labs(), None), @"several labs are up; say with --lab which is meant: a/x=1,y=1 a/x=1,y=2 b");
        insta::assert_snapshot!(told(&labs(), Some("a")), @"several labs that are up are called a; say with --lab which is meant: a/x=1,y=1 a/x=1,y=2");
        insta::assert_snapshot!(told(&labs(), Some("a/x=2")), @"a/x=2 is not up; there are a/x=1,y=1, a/x=1,y=2, b");
        insta::assert_snapshot!(told(&labs()[2..], Some("c")), @"c is not up; there is b");
    }
}
