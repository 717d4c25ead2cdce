//! Selects between the ordinary and the full test run. `scripts/test --full` sets `SVCLAB_FULL`;
//! the long suites then run more trials, or run at all.

/// Returns `full` if `SVCLAB_FULL` is set and not empty, else `ordinary`.
pub fn ordinary_or_full<T>(ordinary: T, full: T) -> T {
    if std::env::var_os("SVCLAB_FULL").is_some_and(|set| !set.is_empty()) {
        full
    } else {
        ordinary
    }
}
