//! Computes the product of a lab's axes without the excluded combinations.

use indexmap::IndexMap;

use crate::expectation::matches_values;
use crate::lab::LabSpec;

/// Maximum number of cases in a lab.
pub(crate) const MAX_CASES: usize = 4096;

/// Maximum number of combinations before `exclude` is applied.
pub(crate) const MAX_COMBINATIONS: usize = 65_536;

/// Combination of axis values, one of each axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Combination {
    /// Value of each axis, in the order of the axes.
    pub values: IndexMap<String, String>,
    /// Index of the value in each axis.
    pub positions: Vec<usize>,
}

impl Combination {
    /// Returns `LAB/AXIS=VALUE,AXIS2=VALUE2`; without axes, the lab's name.
    pub(crate) fn id(&self, lab: &str) -> String {
        if self.values.is_empty() {
            return lab.to_owned();
        }
        let values: Vec<String> = self
            .values
            .iter()
            .map(|(axis, value)| format!("{axis}={value}"))
            .collect();
        format!("{lab}/{}", values.join(","))
    }
}

/// Error of computing the product.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProductError {
    /// More than [`MAX_COMBINATIONS`] before `exclude`.
    #[error("the axes make more than {MAX_COMBINATIONS} combinations")]
    TooManyCombinations,
    /// More than [`MAX_CASES`] after `exclude`.
    #[error("the axes make {0} cases, more than {MAX_CASES}")]
    TooManyCases(usize),
}

/// Returns the combinations that `exclude` does not match, the first axis varying slowest. Also
/// returns the number of combinations that each entry of `exclude` matches.
pub(crate) fn combinations(spec: &LabSpec) -> Result<(Vec<Combination>, Vec<usize>), ProductError> {
    let axes = &spec.axes;
    let total = axes
        .values()
        .try_fold(1usize, |product, values| product.checked_mul(values.len()))
        .filter(|total| *total <= MAX_COMBINATIONS)
        .ok_or(ProductError::TooManyCombinations)?;
    let mut excluded = vec![0; spec.exclude.len()];
    let mut kept = Vec::new();
    for number in 0..total {
        let combination = combination_at(axes, number);
        let mut is_kept = true;
        for (entry, count) in spec.exclude.iter().zip(&mut excluded) {
            if matches_values(entry, &combination.values) {
                is_kept = false;
                *count += 1;
            }
        }
        if is_kept {
            kept.push(combination);
        }
    }
    if kept.len() > MAX_CASES {
        return Err(ProductError::TooManyCases(kept.len()));
    }
    Ok((kept, excluded))
}

/// Returns the combination with this number. Each axis is one digit of the number.
fn combination_at<P>(axes: &IndexMap<String, IndexMap<String, P>>, number: usize) -> Combination {
    let mut rest = number;
    let mut positions: Vec<usize> = axes
        .values()
        .rev()
        .map(|values| {
            let position = rest % values.len();
            rest /= values.len();
            position
        })
        .collect();
    positions.reverse();
    let values = axes
        .iter()
        .zip(&positions)
        .filter_map(|((axis, values), position)| {
            let (value, _) = values.get_index(*position)?;
            Some((axis.clone(), value.clone()))
        })
        .collect();
    Combination { values, positions }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(axes: &serde_json::Value, exclude: &serde_json::Value) -> LabSpec {
        serde_json::from_value(json!({"about": "x", "axes": axes, "exclude": exclude}))
            .expect("a spec")
    }

    fn ids(spec: &LabSpec) -> Vec<String> {
        let (combinations, _) = combinations(spec).expect("a product");
        combinations.iter().map(|c| c.id("l")).collect()
    }

    #[test]
    fn product_first_axis_varies_slowest() {
        let spec = spec(
            &json!({"a": {"1": [], "2": []}, "b": {"x": [], "y": []}}),
            &json!([]),
        );
        assert_eq!(
            ids(&spec),
            ["l/a=1,b=x", "l/a=1,b=y", "l/a=2,b=x", "l/a=2,b=y"]
        );
    }

    #[test]
    fn product_without_axes_has_one_case() {
        assert_eq!(ids(&spec(&json!({}), &json!([]))), ["l"]);
    }

    #[test]
    fn excluded_combinations_are_counted() {
        let spec = spec(
            &json!({"a": {"1": [], "2": []}, "b": {"x": [], "y": []}}),
            &json!([{"a": 1, "b": ["x", "y"]}, {"b": "z"}]),
        );
        let (left, excluded) = combinations(&spec).expect("a product");
        assert_eq!((left.len(), excluded), (2, vec![2, 0]));
    }

    #[test]
    fn product_over_limit_returns_error() {
        let values: serde_json::Map<_, _> = (0..100).map(|n| (n.to_string(), json!([]))).collect();
        let axes = |n: usize| -> serde_json::Value {
            (0..n)
                .map(|a| (format!("a{a}"), json!(values)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let error = |n| combinations(&spec(&axes(n), &json!([]))).err();
        assert_eq!(error(1), None);
        assert_eq!(error(2), Some(ProductError::TooManyCases(10_000)));
        assert_eq!(error(3), Some(ProductError::TooManyCombinations));
        assert_eq!(error(40), Some(ProductError::TooManyCombinations));
    }
}
