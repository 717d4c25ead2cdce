//! How much is done: `scripts/test --full` sets `SVCLAB_FULL`, and the long suites
//! are tests that then do more, or anything at all.

/// What is so in an ordinary run, or what is so in the long suites.
pub fn ordinary_or_full<T>(ordinary: T, full: T) -> T {
    if std::env::var_os("SVCLAB_FULL").is_some_and(|set| !set.is_empty()) {
        full
    } else {
        ordinary
    }
}
