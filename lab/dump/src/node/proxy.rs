//! Reads the settings of a node's kube-proxy from its flags and its configuration file.

use std::collections::BTreeMap;

/// Settings that affect the rules. With a configuration file, kube-proxy ignores all flags except a
/// few (kubernetes at c57e1156f, `cmd/kube-proxy/app/options.go`, `Complete`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KubeProxySettings {
    /// Flags by name, without dashes: `cluster-cidr`.
    pub flags: BTreeMap<String, String>,
    /// Settings of the configuration file, by the names of the corresponding flags.
    pub configuration: BTreeMap<String, String>,
}

/// Fields of the configuration file that are read, each with the corresponding flag (kubernetes at
/// c57e1156f, `cmd/kube-proxy/app/options.go`, `AddFlags`).
const FIELDS: [(&str, &str); 10] = [
    ("mode", "proxy-mode"),
    ("clusterCIDR", "cluster-cidr"),
    ("detectLocalMode", "detect-local-mode"),
    ("bindAddress", "bind-address"),
    ("hostnameOverride", "hostname-override"),
    ("iptables.masqueradeAll", "masquerade-all"),
    ("iptables.masqueradeBit", "iptables-masquerade-bit"),
    ("ipvs.scheduler", "ipvs-scheduler"),
    ("ipvs.strictARP", "ipvs-strict-arp"),
    ("nodePortAddresses", "nodeport-addresses"),
];

impl KubeProxySettings {
    /// Reads the command line, one argument per line. Arguments that are not flags are ignored.
    pub(super) fn read_flags(&mut self, text: &str) {
        let mut arguments = text.lines().skip(1).peekable();
        while let Some(word) = arguments.next() {
            let Some(name) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
                continue;
            };
            // A flag without a value is a switch.
            let (name, value) = name.split_once('=').unwrap_or_else(|| {
                let value = arguments.next_if(|next| !next.starts_with('-'));
                (name, value.unwrap_or("true"))
            });
            self.flags.insert(name.to_owned(), value.to_owned());
        }
    }

    /// Reads the configuration file. Invalid YAML and other documents are ignored.
    pub(super) fn read_configuration(&mut self, text: &str) {
        let Ok(read) = serde_saphyr::from_str::<serde_json::Value>(text) else {
            return;
        };
        for (path, flag) in FIELDS {
            let found = path
                .split('.')
                .try_fold(&read, |value, field| value.get(field));
            let value = match found {
                Some(serde_json::Value::String(value)) => value.clone(),
                Some(serde_json::Value::Array(values)) => {
                    let values = values.iter().filter_map(serde_json::Value::as_str);
                    values.collect::<Vec<_>>().join(",")
                }
                Some(serde_json::Value::Null) | None => continue,
                Some(value) => value.to_string(),
            };
            if !value.is_empty() {
                self.configuration.insert(flag.to_owned(), value);
            }
        }
    }

    /// Whether the dump has flags or a configuration.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !self.flags.is_empty() || !self.configuration.is_empty()
    }

    /// Returns the names of the settings that determine rules, as flags.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        FIELDS.iter().map(|(_, flag)| *flag)
    }

    /// Returns the effective value of a flag, from the configuration file if there is one. `None`
    /// if the flag is unset or empty.
    #[must_use]
    pub fn value(&self, flag: &str) -> Option<&str> {
        let settings = if self.configuration.is_empty() {
            &self.flags
        } else {
            &self.configuration
        };
        settings
            .get(flag)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Returns the effective settings as flags.
    #[must_use]
    pub fn effective_flags(&self) -> Vec<String> {
        let flags = FIELDS.iter().filter_map(|(_, flag)| {
            let value = self.value(flag)?;
            Some(format!("--{flag}={value}"))
        });
        flags.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kube_proxy_settings_configuration_overrides_flags() {
        let mut proxy = KubeProxySettings::default();
        proxy.read_flags(
            "/usr/bin/kube-proxy\n--proxy-mode=ipvs\n--cluster-cidr\n10.0.0.0/8\n--masquerade-all\n-v=2\n",
        );
        assert_eq!(
            proxy.effective_flags(),
            [
                "--proxy-mode=ipvs",
                "--cluster-cidr=10.0.0.0/8",
                "--masquerade-all=true"
            ]
        );
        proxy.read_configuration(
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\nclusterCIDR: \"\"\n\
             iptables: {masqueradeAll: false, masqueradeBit: 14}\nnodePortAddresses: [10.0.0.0/8, 10.1.0.0/16]\nipvs: null\n",
        );
        assert_eq!(
            proxy.effective_flags(),
            [
                "--proxy-mode=nftables",
                "--masquerade-all=false",
                "--iptables-masquerade-bit=14",
                "--nodeport-addresses=10.0.0.0/8,10.1.0.0/16"
            ]
        );
        assert_eq!(proxy.value("cluster-cidr"), None);
    }

    #[test]
    fn kube_proxy_settings_invalid_text_is_ignored() {
        let mut proxy = KubeProxySettings::default();
        for text in ["", "{", "hello", "- a", "mode: {a: b", "\u{1}"] {
            proxy.read_configuration(text);
            proxy.read_flags(text);
        }
        assert_eq!(proxy, KubeProxySettings::default());
    }
}
