//! Resolves plain scalars by the core schema of YAML 1.2 (chapter 10.3.2 of the specification):
//! `no` is a string, `0o17` is 15, `017` is 17.

use crate::yaml::tree::ScalarKind;

/// Resolves a scalar without quotes and tag.
pub(crate) fn resolve(text: &str) -> ScalarKind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => ScalarKind::Null,
        "true" | "True" | "TRUE" => ScalarKind::Bool(true),
        "false" | "False" | "FALSE" => ScalarKind::Bool(false),
        _ => resolve_number(text).unwrap_or(ScalarKind::String),
    }
}

/// Resolves a scalar with a tag of the core schema. `None` if the text does not fit the tag.
pub(crate) fn resolve_tagged(text: &str, tag: &str) -> Option<ScalarKind> {
    let resolved = resolve(text);
    match (tag, resolved) {
        ("str", _) => Some(ScalarKind::String),
        ("null", ScalarKind::Null)
        | ("bool", ScalarKind::Bool(_))
        | ("int", ScalarKind::Unsigned(_) | ScalarKind::Negative(_))
        | ("float", ScalarKind::Float(_)) => Some(resolved),
        ("float", ScalarKind::Unsigned(_) | ScalarKind::Negative(_)) => {
            text.parse().ok().map(ScalarKind::Float)
        }
        _ => None,
    }
}

fn resolve_number(text: &str) -> Option<ScalarKind> {
    if let Some(octal) = text.strip_prefix("0o") {
        return parse_radix(octal, 8);
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return parse_radix(hex, 16);
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if is_digits(unsigned) {
        return if text.starts_with('-') {
            match text.parse::<i64>() {
                Ok(0) => Some(ScalarKind::Unsigned(0)),
                Ok(n) => Some(ScalarKind::Negative(n)),
                Err(_) => text.parse().ok().map(ScalarKind::Float),
            }
        } else {
            match unsigned.parse::<u64>() {
                Ok(n) => Some(ScalarKind::Unsigned(n)),
                Err(_) => unsigned.parse().ok().map(ScalarKind::Float),
            }
        };
    }
    match (text, unsigned) {
        (".nan" | ".NaN" | ".NAN", _) => return Some(ScalarKind::Float(f64::NAN)),
        (_, ".inf" | ".Inf" | ".INF") => {
            let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
            return Some(ScalarKind::Float(sign * f64::INFINITY));
        }
        _ => {}
    }
    // [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let mantissa_fits = match mantissa.split_once('.') {
        Some(("", fraction)) => is_digits(fraction),
        Some((whole, fraction)) => is_digits(whole) && (fraction.is_empty() || is_digits(fraction)),
        None => is_digits(mantissa),
    };
    let exponent_fits = exponent.is_none_or(|e| is_digits(e.strip_prefix(['-', '+']).unwrap_or(e)));
    if !mantissa_fits || !exponent_fits {
        return None;
    }
    text.parse().ok().map(ScalarKind::Float)
}

fn parse_radix(digits: &str, radix: u32) -> Option<ScalarKind> {
    // `from_str_radix` accepts a sign.
    if digits.starts_with(['-', '+']) {
        return None;
    }
    u64::from_str_radix(digits, radix)
        .ok()
        .map(ScalarKind::Unsigned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalar_resolves_by_core_schema() {
        use ScalarKind::{Bool, Float, Negative, Null, String, Unsigned};
        let table = [
            ("", Null),
            ("~", Null),
            ("null", Null),
            ("nUll", String),
            ("true", Bool(true)),
            ("FALSE", Bool(false)),
            ("no", String),
            ("on", String),
            ("7", Unsigned(7)),
            ("007", Unsigned(7)),
            ("+7", Unsigned(7)),
            ("-7", Negative(-7)),
            ("-0", Unsigned(0)),
            ("0o17", Unsigned(15)),
            ("0xfF", Unsigned(255)),
            ("0x", String),
            ("0x-1", String),
            ("1_000", String),
            ("18446744073709551615", Unsigned(u64::MAX)),
            ("18446744073709551616", Float(18_446_744_073_709_551_616.0)),
            ("1.20", Float(1.2)),
            (".5", Float(0.5)),
            ("1.", Float(1.0)),
            ("1e3", Float(1000.0)),
            ("-.inf", Float(f64::NEG_INFINITY)),
            ("1.2.3", String),
            (".", String),
            ("e3", String),
            ("2..6", String),
            ("10.0.0.1", String),
            ("v1.18", String),
            ("1e", String),
            ("-", String),
            ("inf", String),
            ("NaN", String),
            ("2024-01-01T00:00:00Z", String),
        ];
        for (text, kind) in table {
            assert_eq!(resolve(text), kind, "{text}");
        }
    }

    #[test]
    fn tagged_scalar_resolves_or_is_refused() {
        assert_eq!(resolve_tagged("5", "str"), Some(ScalarKind::String));
        assert_eq!(resolve_tagged("5", "int"), Some(ScalarKind::Unsigned(5)));
        assert_eq!(resolve_tagged("5", "float"), Some(ScalarKind::Float(5.0)));
        assert_eq!(resolve_tagged("x", "int"), None);
        assert_eq!(resolve_tagged("x", "map"), None);
    }
}
