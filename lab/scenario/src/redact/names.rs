//! Renames names. The function `rename` of `scripts/collect-node` returns the same names.

use crate::redact::key::{RedactionKey, hex};

/// Number of hexadecimal digits in a new name.
const NAME_DIGITS: usize = 10;

/// Names that every cluster has. They stay unchanged.
const COMMON_NAMES: [(NameKind, &str); 6] = [
    (NameKind::Namespace, "default"),
    (NameKind::Namespace, "kube-system"),
    (NameKind::Namespace, "kube-public"),
    (NameKind::Namespace, "kube-node-lease"),
    (NameKind::Name, "kubernetes"),
    (NameKind::Name, "kube-dns"),
];

/// Kind of a name. Equal names of different kinds get different new names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// Kubernetes namespace.
    Namespace,
    /// Object other than a node, or value of a label.
    Name,
    /// Node. Upper and lower case are equal.
    Node,
    /// DNS name of another machine.
    Host,
    /// Key of a label.
    Label,
    /// Kind of an object that svclab does not model.
    Kind,
    /// Any other text.
    Value,
}

impl NameKind {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Name => "name",
            Self::Node => "node",
            Self::Host => "host",
            Self::Label => "label",
            Self::Kind => "kind",
            Self::Value => "value",
        }
    }
}

impl RedactionKey {
    /// Returns the new name for a name. A node that is named after its address gets the name of the
    /// new address. An empty name stays empty.
    #[must_use]
    pub fn rename(&self, kind: NameKind, name: &str) -> String {
        if name.is_empty() || COMMON_NAMES.contains(&(kind, name)) {
            return name.to_owned();
        }
        let mut name = name.to_owned();
        if kind == NameKind::Node {
            if let Some(address) = self.redact_address(&name) {
                return address;
            }
            name = name.to_ascii_lowercase();
        }
        let prefix = kind.prefix();
        let digits = hex(&self.hash(&format!("{prefix} {name}")));
        format!("{prefix}-{}", &digits[..NAME_DIGITS])
    }
}
