//! "Did you mean": the name nearest to one that does not exist.

/// The candidate nearest to `name`, when it is near enough to be a slip of the
/// fingers: a third of the name's characters may be wrong (one in a name of three
/// to five, none in a shorter one), two swapped neighbours counting as one; upper
/// and lower case and the namespace in front of a `/` count for little.
#[must_use]
pub fn suggest<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let wanted = name.to_lowercase();
    let allowed = match name.chars().count() {
        0..=2 => 0,
        3..=5 => 1,
        length => length / 3,
    };
    candidates
        .into_iter()
        .filter(|candidate| *candidate != name)
        .filter_map(|candidate| {
            let lower = candidate.to_lowercase();
            let distance = strsim::damerau_levenshtein(&wanted, &lower);
            if distance <= allowed {
                return Some((distance, candidate));
            }
            // The right name in the wrong place: nearer than nothing, farther
            // than any slip.
            let last = |path: &str| path.rsplit('/').next().map(str::to_owned);
            (wanted.contains('/') && last(&wanted) == last(&lower))
                .then_some((usize::MAX, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// [`suggest`] as a sentence: "did you mean `axes`?"
#[must_use]
pub fn did_you_mean<'c>(
    name: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<String> {
    suggest(name, candidates).map(|candidate| format!("did you mean `{candidate}`?"))
}

/// Names as a sentence lists them: "`a`, `b` and `c`"; of more than twelve, the
/// first ones and how many more there are.
#[must_use]
pub fn listed<'c>(names: impl IntoIterator<Item = &'c str>) -> String {
    const MOST: usize = 12;
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [] => "none".to_owned(),
        [one] => one.clone(),
        [head @ .., _] if quoted.len() > MOST => {
            format!(
                "{} and {} more",
                head[..MOST].join(", "),
                quoted.len() - MOST
            )
        }
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let fields = ["axes", "about", "exclude", "expect"];
        assert_eq!(suggest("axess", fields), Some("axes"));
        assert_eq!(suggest("Axes", fields), Some("axes"));
        assert_eq!(suggest("axse", fields), Some("axes"));
        assert_eq!(suggest("exlude", fields), Some("exclude"));
        assert_eq!(suggest("hosts", fields), None);
        assert_eq!(suggest("2", ["0", "1"]), None);
        assert_eq!(
            suggest("selctor", ["selector", "sessionAffinity"]),
            Some("selector")
        );
    }

    #[test]
    fn a_name_in_another_namespace_is_near() {
        let objects = ["Service/prod/nginx", "Service/default/apiserver"];
        assert_eq!(
            suggest("Service/default/nginx", objects),
            Some("Service/prod/nginx")
        );
        assert_eq!(suggest("Pod/a/zzz", objects), None);
    }

    #[test]
    fn lists_end_somewhere() {
        assert_eq!(listed([]), "none");
        assert_eq!(listed(["a", "b", "c"]), "`a`, `b` and `c`");
        let many: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        assert!(listed(many.iter().map(String::as_str)).ends_with("`11` and 8 more"));
    }
}
