//! Renders JSON values in the flow style of YAML: `{name: web, ports: [{port: 80}]}`.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde_json::Value;

/// Renders a value on one line.
pub(super) fn flow(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields: Vec<String> = fields
                .map(|(key, value)| format!("{}: {}", scalar(key), flow(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        Value::String(text) => scalar(text),
        other => other.to_string(),
    }
}

/// Renders a string, in quotes unless every YAML reader takes it for the same string without.
pub(super) fn scalar(text: &str) -> String {
    const KEYWORDS: [&str; 8] = ["true", "false", "null", "yes", "no", "on", "off", "y"];
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let is_word = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(is_plain)
        && !KEYWORDS.contains(&text.to_ascii_lowercase().as_str())
        && !text.eq_ignore_ascii_case("n");
    let is_ipv4 = |text: &str| text.parse().is_ok_and(|address: IpAddr| address.is_ipv4());
    let is_network = |text: &str| {
        text.contains('/')
            && text
                .parse()
                .is_ok_and(|network: IpNetwork| network.is_ipv4())
    };
    if is_word || is_ipv4(text) || is_network(text) {
        text.to_owned()
    } else {
        // A JSON string is a double-quoted YAML string.
        Value::from(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn flow_quotes_ambiguous_strings() {
        let value = json!({
            "name": "web", "zone": "1e3", "is": "yes", "n": "", "ip": "10.0.0.1",
            "six": "fd00::1", "cidr": "10.0.0.0/8", "app.io/x": "a: b", "ports": [80, true, null],
        });
        insta::assert_snapshot!(flow(&value), @r#"{name: web, zone: "1e3", is: "yes", "n": "", ip: 10.0.0.1, six: "fd00::1", cidr: 10.0.0.0/8, app.io/x: "a: b", ports: [80, true, null]}"#);
    }
}
