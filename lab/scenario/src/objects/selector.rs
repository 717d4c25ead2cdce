//! Matches label selectors of services, `NetworkPolicy` objects and workloads.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Whether a selector matches an object with these labels. An empty selector matches every object.
/// An operator that the API does not define is refused before. (apimachinery v0.36.0
/// `pkg/apis/meta/v1/helpers.go`, `LabelSelectorAsSelector`; `pkg/labels/selector.go`,
/// `Requirement.Matches`.)
pub(crate) fn matches(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    let value = |key: &str| labels.and_then(|labels| labels.get(key));
    let wanted = selector.match_labels.as_ref();
    let equal = wanted.is_none_or(|wanted| has_labels(labels, wanted));
    let mut expressions = selector.match_expressions.iter().flatten();
    equal
        && expressions.all(|expression| {
            let listed = |value: &String| expression.values.iter().flatten().any(|v| v == value);
            let value = value(&expression.key);
            match expression.operator.as_str() {
                "In" => value.is_some_and(listed),
                "NotIn" => !value.is_some_and(listed),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// Whether an object has all of these labels.
pub(crate) fn has_labels(
    labels: Option<&BTreeMap<String, String>>,
    wanted: &BTreeMap<String, String>,
) -> bool {
    let mut wanted = wanted.iter();
    wanted.all(|(key, wanted)| labels.and_then(|labels| labels.get(key)) == Some(wanted))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selector_matches_labels() {
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        for (selector, expected) in [
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "db"}}), false),
            (json!({"matchLabels": {"app": "web", "tier": "x"}}), false),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["x"]}]}),
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}),
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}),
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}),
                true,
            ),
            (
                json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}),
                false,
            ),
        ] {
            let read: LabelSelector = serde_json::from_value(selector.clone()).expect("a selector");
            assert_eq!(matches(&read, Some(&labels)), expected, "{selector}");
        }
    }
}
