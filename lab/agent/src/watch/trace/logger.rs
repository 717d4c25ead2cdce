//! Sets the netfilter logger of a namespace through sysctls, and restores it on drop.
//!
//! The setting affects only logged packets. Without it, a namespace other than the initial one logs
//! nothing (Linux v6.12, `net/netfilter/nf_log_syslog.c`, which checks `sysctl_nf_log_all_netns`).

use std::fs;
use std::io;

use crate::net::netns::NetNs;

/// Sysctls by address family, for IPv4 and IPv6.
const FILES: [&str; 2] = [
    "/proc/sys/net/netfilter/nf_log/2",
    "/proc/sys/net/netfilter/nf_log/10",
];

/// Logger that sends packets over netlink.
const NFNETLINK_LOG: &str = "nfnetlink_log";

/// Logger sysctls of one namespace.
#[derive(Debug)]
pub(super) struct LoggerGuard {
    ns: NetNs,
    /// Previous values, by file.
    previous: Vec<(&'static str, String)>,
}

impl LoggerGuard {
    /// Makes both address families log over netlink.
    ///
    /// # Errors
    ///
    /// When the kernel has no such log or rejects the setting.
    pub(super) fn set(ns: &NetNs) -> io::Result<Self> {
        let mut logger = Self {
            ns: ns.clone(),
            previous: Vec::new(),
        };
        ns.enter(|| {
            for file in FILES {
                let before = match fs::read_to_string(file) {
                    Ok(before) => before,
                    // The kernel has no IPv6.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                };
                fs::write(file, NFNETLINK_LOG)?;
                logger.previous.push((file, before.trim().to_owned()));
            }
            Ok(())
        })??;
        Ok(logger)
    }
}

impl Drop for LoggerGuard {
    fn drop(&mut self) {
        // Writing the previous value cannot fail if writing the new value succeeded.
        let _ = self.ns.enter(|| {
            for (file, before) in &self.previous {
                let _ = fs::write(file, before);
            }
        });
    }
}
