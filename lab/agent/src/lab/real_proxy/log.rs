//! Extracts the relevant lines of a kube-proxy's log, and the failures to write rules.

/// Maximum number of log lines in an error.
pub(super) const MAX_LINES: usize = 12;

/// Messages of ipvs syncs that skipped an object and continued, so that kube-proxy counts the sync
/// as a success (`syncService`, `syncEndpoint` and `syncProxyRules` of `pkg/proxy/ipvs/proxier.go`,
/// `syncIPSetEntries` of `pkg/proxy/ipvs/ipset.go`, v1.16 to v1.36).
const SKIPPED_MESSAGES: [&str; 14] = [
    "Failed to add IPVS service",
    "Failed to update IPVS service",
    "Failed to bind service address to dummy device",
    "Failed to get IPVS service",
    "Failed to list IPVS destinations",
    "Failed to add destination",
    "Failed to update destination",
    "Failed to sync endpoint for service",
    "Failed to sync service",
    "Failed to create dummy interface",
    "Failed to list ip set entries",
    "Failed to add ip set entry",
    "Failed to add entry",
    "Failed to delete ip set entry",
];

/// Messages of failed syncs (`syncProxyRules` of `pkg/proxy/{iptables,ipvs,nftables}/proxier.go`,
/// v1.16 to v1.36).
const FAILED_MESSAGES: [&str; 2] = ["Failed to execute iptables-restore", "nftables sync failed"];

/// Returns the number of failed syncs.
pub(super) fn failed_syncs(log: &str) -> u64 {
    let errors =
        errors(log).filter(|line| FAILED_MESSAGES.iter().any(|words| line.contains(words)));
    u64::try_from(errors.count()).unwrap_or(u64::MAX)
}

/// Whether a sync skipped an object.
pub(super) fn has_skipped_objects(log: &str) -> bool {
    errors(log).any(|line| SKIPPED_MESSAGES.iter().any(|words| line.contains(words)))
}

/// Whether the log contains an error.
pub(super) fn has_error(log: &str) -> bool {
    errors(log).next().is_some()
}

/// Returns the last lines of the log. If only earlier lines contain errors, returns the last
/// errors: an unknown flag, for example, is followed by a list of all flags.
pub(super) fn relevant_end(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let (before, end) = lines.split_at(lines.len().saturating_sub(MAX_LINES));
    let errors: Vec<&str> = errors_in(before).collect();
    if errors.is_empty() || errors_in(end).next().is_some() {
        return end.join("\n");
    }
    errors[errors.len().saturating_sub(MAX_LINES)..].join("\n")
}

fn errors(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter(|line| is_error(line))
}

fn errors_in<'l>(lines: &[&'l str]) -> impl Iterator<Item = &'l str> {
    lines.iter().copied().filter(|line| is_error(line))
}

/// Whether a line is an error of the flag library, of the Go runtime, or of the log. Log lines
/// start with a severity and a date.
fn is_error(line: &str) -> bool {
    let mut rest = line.chars();
    let severe = matches!(rest.next(), Some('E' | 'F'));
    let dated = rest.take(4).filter(char::is_ascii_digit).count() == 4;
    severe && dated
        || ["Error:", "error:", "panic:", "fatal error:"]
            .iter()
            .any(|begin| line.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_failed_sync_is_counted_by_its_message() {
        let old = "E1122 09:00:00.1 1 proxier.go:1595] Failed to execute iptables-restore: exit status 1\n";
        let new = "E1122 09:00:00.1 1 proxier.go:1723] \"nftables sync failed\" err=<\n\tMessage too long\n";
        assert_eq!(
            failed_syncs(&format!(
                "{old}I1122 09:00:00.1 1 a.go:1] nftables sync failed\n{new}"
            )),
            2
        );
        assert!(!has_skipped_objects(old));
        let ipvs =
            "E1122 09:00:00.1 1 proxier.go:1977] Failed to add IPVS service \"default/web\": no\n";
        assert!(has_skipped_objects(ipvs) && has_error(ipvs) && failed_syncs(ipvs) == 0);
    }

    #[test]
    fn log_error_before_long_usage_is_returned() {
        let usage = "  --flag\n".repeat(50);
        let text = relevant_end(&format!(
            "W1122 09:00:00 a\nError: unknown flag: --x\n{usage}"
        ));
        assert_eq!(text, "Error: unknown flag: --x");
        let text = relevant_end(&format!(
            "E1122 09:00:00.1 1 a.go:2] no\n{usage}panic: over\n"
        ));
        assert_eq!(text.lines().last(), Some("panic: over"));
        assert_eq!(text.lines().count(), MAX_LINES);
    }

    #[test]
    fn log_without_errors_returns_last_lines() {
        let text = relevant_end(&("first\n".repeat(38) + "then\n" + &"last\n".repeat(11)));
        assert_eq!(text.lines().next(), Some("then"));
        assert_eq!(text.lines().count(), MAX_LINES);
    }
}
