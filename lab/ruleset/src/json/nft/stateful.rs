//! Converts statements with a state, which rules, sets and elements of sets can have: counters,
//! limits and quotas.

use super::super::value::Value;
use super::Unknown;
use super::member::{is_on, required};

/// Converts a statement with a state. `None` for other statements.
pub(super) fn convert(name: &str, inner: &Value) -> Option<Result<String, Unknown>> {
    let text = match (name, inner) {
        ("counter", Value::Null) | ("last", _) => Ok(name.to_owned()),
        ("counter", Value::Object(_)) => counter(inner),
        ("quota", Value::Object(_)) => quota(inner).map(|quota| format!("quota {quota}")),
        ("limit", Value::Object(_)) => limit(inner).map(|limit| format!("limit {limit}")),
        ("ct count", _) => connections(inner),
        _ => return None,
    };
    Some(text)
}

fn counter(inner: &Value) -> Result<String, Unknown> {
    let part = |member| required(inner, member, "counter");
    Ok(format!(
        "counter packets {} bytes {}",
        part("packets")?,
        part("bytes")?
    ))
}

fn connections(inner: &Value) -> Result<String, Unknown> {
    let over = if is_on(inner, "inv") { "over " } else { "" };
    let number = required(inner, "val", "ct count")?;
    Ok(format!("ct count {over}{number}"))
}

/// Converts a quota without its keyword.
fn quota(inner: &Value) -> Result<String, Unknown> {
    let over = if is_on(inner, "inv") { "over " } else { "" };
    let part = |member| required(inner, member, "quota");
    let used = match inner.get("used") {
        Some(used) => format!(" used {used} {}", part("used_unit")?),
        None => String::new(),
    };
    Ok(format!(
        "{over}{} {}{used}",
        part("val")?,
        part("val_unit")?
    ))
}

/// Converts a limit without its keyword. The default burst is not printed (nftables v1.0.6,
/// `src/statement.c`, `limit_stmt_print`).
pub(super) fn limit(inner: &Value) -> Result<String, Unknown> {
    let part = |member| required(inner, member, "limit");
    let over = if is_on(inner, "inv") { "over " } else { "" };
    let (rate, per) = (part("rate")?, part("per")?);
    let burst = inner
        .get("burst")
        .map_or_else(|| "0".to_owned(), Value::to_string);
    Ok(match inner.text("rate_unit") {
        Some(unit) if unit != "packets" => {
            let burst = match burst.as_str() {
                "0" => String::new(),
                burst => format!(" burst {burst} {}", part("burst_unit")?),
            };
            format!("rate {over}{rate} {unit}/{per}{burst}")
        }
        _ if matches!(burst.as_str(), "0" | "5") => format!("rate {over}{rate}/{per}"),
        _ => format!("rate {over}{rate}/{per} burst {burst} packets"),
    })
}
