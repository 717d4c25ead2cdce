//! Parses and evaluates label and field selectors, as kubernetes v1.36
//! `staging/src/k8s.io/apimachinery/pkg/{labels,fields}` does.

use serde_json::Value;
use thiserror::Error;

/// Error for an invalid selector.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SelectorError {
    /// The term is not a valid term of a label selector.
    #[error("`{0}` is not a valid label selector term")]
    InvalidLabelTerm(String),
    /// The term is not a valid term of a field selector.
    #[error("`{0}` is not a valid field selector term: write field=value or field!=value")]
    InvalidFieldTerm(String),
}

/// Label selector. An object must match all terms.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSelector(Vec<LabelTerm>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct LabelTerm {
    key: String,
    /// Accepted values of the label. `None` accepts any value.
    values: Option<Vec<String>>,
    is_negated: bool,
}

/// Field selector. An object must match all terms.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector(Vec<FieldTerm>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldTerm {
    path: Vec<String>,
    value: String,
    is_negated: bool,
}

impl LabelSelector {
    /// Parses a label selector: `!a,b=c,d in (e,f)`.
    ///
    /// # Errors
    ///
    /// Returns [`SelectorError::InvalidLabelTerm`] if a term is invalid.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        split_terms(text)
            .map(parse_label_term)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether the labels of an object match.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|term| {
            let label = object
                .pointer("/metadata/labels")
                .and_then(|labels| labels.get(&term.key))
                .and_then(Value::as_str);
            let is_match = label.is_some_and(|label| {
                let accepted = term.values.as_ref();
                accepted.is_none_or(|values| values.iter().any(|value| value == label))
            });
            is_match != term.is_negated
        })
    }
}

impl FieldSelector {
    /// Parses a field selector: `metadata.name=node-1,spec.clusterIP!=None`.
    ///
    /// # Errors
    ///
    /// Returns [`SelectorError::InvalidFieldTerm`] if a term is invalid.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let term = |text: &str| {
            let (path, negated, value) = split_equation(text)
                .filter(|(path, _, _)| !path.is_empty())
                .ok_or_else(|| SelectorError::InvalidFieldTerm(text.to_owned()))?;
            Ok(FieldTerm {
                path: path.split('.').map(str::to_owned).collect(),
                value: value.to_owned(),
                is_negated: negated,
            })
        };
        let terms = text.split(',').filter(|term| !term.is_empty()).map(term);
        terms.collect::<Result<_, _>>().map(Self)
    }

    /// Whether the fields of an object match. An absent field is equal to an empty one.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|term| {
            let found = term
                .path
                .iter()
                .try_fold(object, |value, key| value.get(key))
                .and_then(Value::as_str);
            (found.unwrap_or_default() == term.value) != term.is_negated
        })
    }
}

/// Splits a label selector into terms. A comma in parentheses does not end a term.
fn split_terms(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    text.split(move |letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|term| !term.is_empty())
}

fn parse_label_term(text: &str) -> Result<LabelTerm, SelectorError> {
    let invalid_term = || SelectorError::InvalidLabelTerm(text.to_owned());
    let term = |key: &str, values: Option<Vec<String>>, negated| {
        let key = key.trim();
        let plain = !key.is_empty() && !key.contains([' ', '!', '=', '(', ')']);
        plain.then(|| LabelTerm {
            key: key.to_owned(),
            values,
            is_negated: negated,
        })
    };
    if let Some(list) = text.strip_suffix(')') {
        let (head, list) = list.split_once('(').ok_or_else(invalid_term)?;
        let (key, operator) = head.trim().rsplit_once(' ').ok_or_else(invalid_term)?;
        let values = list.split(',').map(|value| value.trim().to_owned());
        let negated = match operator {
            "in" => false,
            "notin" => true,
            _ => return Err(invalid_term()),
        };
        return term(key, Some(values.collect()), negated).ok_or_else(invalid_term);
    }
    if let Some((key, negated, value)) = split_equation(text) {
        return term(key, Some(vec![value.to_owned()]), negated).ok_or_else(invalid_term);
    }
    match text.strip_prefix('!') {
        Some(key) => term(key, None, true),
        None => term(text, None, false),
    }
    .ok_or_else(invalid_term)
}

/// Splits `a=b`, `a==b` or `a!=b` into the left side, whether it is negated, and the right side.
fn split_equation(text: &str) -> Option<(&str, bool, &str)> {
    let (left, right) = text.split_once('=')?;
    let right = right.strip_prefix('=').unwrap_or(right).trim();
    Some(match left.strip_suffix('!') {
        Some(left) => (left.trim(), true, right),
        None => (left.trim(), false, right),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn matches_labels(selector: &str, labels: &Value) -> bool {
        let object = json!({"metadata": {"labels": labels}});
        LabelSelector::parse(selector).unwrap().matches(&object)
    }

    #[test]
    fn label_selector_matches_all_operators() {
        let labels = json!({"app": "web", "tier": "front"});
        for (selector, holds) in [
            ("", true),
            ("app", true),
            ("!app", false),
            (
                "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name",
                true,
            ),
            ("app=web", true),
            ("app==web,tier!=back", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (db, web),tier notin (back)", true),
            ("app notin (db,web)", false),
            ("other notin (x)", true),
        ] {
            assert_eq!(matches_labels(selector, &labels), holds, "{selector}");
        }
        assert!(matches_labels("!app", &Value::Null));
    }

    #[test]
    fn field_selector_matches_field_path() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "None"}});
        for (selector, holds) in [
            ("metadata.name=a", true),
            ("metadata.name==b", false),
            ("spec.clusterIP!=None", false),
            ("spec.clusterIP!=10.0.0.1,metadata.name=a", true),
            ("spec.absent!=x", true),
            ("", true),
        ] {
            let read = FieldSelector::parse(selector).unwrap();
            assert_eq!(read.matches(&object), holds, "{selector}");
        }
    }

    #[test]
    fn selector_invalid_term_returns_error() {
        for wrong in ["a in b", "in (a)", "a on (b)", "!", "a b", "=b"] {
            let message = LabelSelector::parse(wrong).unwrap_err().to_string();
            assert_eq!(
                message,
                format!("`{wrong}` is not a valid label selector term")
            );
        }
        assert_eq!(
            FieldSelector::parse("metadata.name")
                .unwrap_err()
                .to_string(),
            "`metadata.name` is not a valid field selector term: write field=value or field!=value"
        );
    }
}
