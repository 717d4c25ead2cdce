//! Suggests the most similar existing name for an unknown name.

/// Returns the candidate most similar to `name`. `None` if no candidate is similar enough for a
/// typing error.
///
/// A third of the characters may differ: one in a name of three to five characters, none in a
/// shorter name. A swap of neighbours counts as one difference. The case of letters does not count.
/// If only the part before the last `/` differs, the candidate is also similar, but less than any
/// other.
#[must_use]
pub fn suggest<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let lower_name = name.to_lowercase();
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
            let distance = strsim::damerau_levenshtein(&lower_name, &lower);
            if distance <= allowed {
                return Some((distance, candidate));
            }
            // Same name with another prefix, such as another namespace. Every typing error is more
            // similar.
            let last_component = |path: &str| path.rsplit('/').next().map(str::to_owned);
            (lower_name.contains('/') && last_component(&lower_name) == last_component(&lower))
                .then_some((usize::MAX, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Formats the result of [`suggest`] as a question: "did you mean `axes`?"
#[must_use]
pub fn did_you_mean<'c>(
    name: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<String> {
    suggest(name, candidates).map(|candidate| format!("did you mean `{candidate}`?"))
}

/// Formats names as a list, like [`format_list`]. Of more than twelve names, lists the five that are
/// most similar to `name`, the most similar first.
#[must_use]
pub fn format_similar<'c>(name: &str, names: impl IntoIterator<Item = &'c str>) -> String {
    const MAX_SIMILAR: usize = 5;
    let mut names: Vec<&str> = names.into_iter().collect();
    if names.len() <= MAX_LISTED {
        return format_list(names);
    }
    let lower_name = name.to_lowercase();
    let likeness = |other: &str| strsim::jaro_winkler(&lower_name, &other.to_lowercase());
    names.sort_by(|one, other| likeness(other).total_cmp(&likeness(one)));
    let rest = names.len() - MAX_SIMILAR;
    let quoted = names[..MAX_SIMILAR].iter().map(|name| format!("`{name}`"));
    format!("{} and {rest} more", quoted.collect::<Vec<_>>().join(", "))
}

/// Maximum number of names in a list.
const MAX_LISTED: usize = 12;

/// Formats names as a list: "`a`, `b` and `c`". For more than twelve names, lists the first twelve
/// and the number of further names.
#[must_use]
pub fn format_list<'c>(names: impl IntoIterator<Item = &'c str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [] => "none".to_owned(),
        [name] => name.clone(),
        [head @ .., _] if quoted.len() > MAX_LISTED => {
            format!(
                "{} and {} more",
                head[..MAX_LISTED].join(", "),
                quoted.len() - MAX_LISTED
            )
        }
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggest_returns_only_similar_names() {
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
    fn suggest_same_name_in_other_namespace_is_returned() {
        let objects = ["Service/prod/nginx", "Service/default/apiserver"];
        assert_eq!(
            suggest("Service/default/nginx", objects),
            Some("Service/prod/nginx")
        );
        assert_eq!(suggest("Pod/a/zzz", objects), None);
    }

    #[test]
    fn similar_names_are_listed_first() {
        let few = ["alpha", "beta"];
        assert_eq!(format_similar("zeta", few), "`alpha` and `beta`");
        let many = [
            "apple",
            "hosts",
            "nodes",
            "probes",
            "fabric",
            "axes",
            "expect",
            "steps",
            "claims",
            "columns",
            "facts",
            "flows",
            "probeTable",
        ];
        let listed = format_similar("probing", many);
        assert!(
            listed.starts_with("`probes`, ") && listed.ends_with(" and 8 more"),
            "{listed}"
        );
    }

    #[test]
    fn listed_many_names_are_truncated() {
        assert_eq!(format_list([]), "none");
        assert_eq!(format_list(["a", "b", "c"]), "`a`, `b` and `c`");
        let many: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        assert!(format_list(many.iter().map(String::as_str)).ends_with("`11` and 8 more"));
    }
}
