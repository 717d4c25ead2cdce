//! Defines the errors of applying a change.

/// Reason why a change cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The change has no effect.
    #[error("the change has no effect")]
    NoEffect,
    /// The plan or namespace lacks the object to change.
    #[error("{0} does not contain the object to change")]
    Missing(String),
    /// The cluster CIDR of kube-proxy cannot be parsed.
    #[error("invalid cluster CIDR `{0}`")]
    InvalidCidr(String),
    /// The rules of a namespace cannot be parsed.
    #[error("cannot parse the rules of {0}")]
    Unreadable(String),
}
