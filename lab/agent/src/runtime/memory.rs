//! Reads the memory that the kernel reports.

use std::fs;

/// Returns `MemAvailable` of `/proc/meminfo`, in KiB. `None` if it cannot be read.
#[must_use]
pub fn available_kib() -> Option<u64> {
    parse_available(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_available(meminfo: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_parsed_from_meminfo() {
        let meminfo =
            "MemTotal:       24689152 kB\nMemFree:         100 kB\nMemAvailable:   20480000 kB\n";
        assert_eq!(parse_available(meminfo), Some(20_480_000));
        assert_eq!(parse_available("nothing"), None);
    }
}
