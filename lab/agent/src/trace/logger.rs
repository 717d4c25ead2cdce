//! To whom a namespace's netfilter logs: a setting, put back when this is dropped.
//!
//! Only what is logged goes another way by that, and in a namespace of its own it goes
//! nowhere without it (Linux v6.12, `net/netfilter/nf_log_syslog.c`, where
//! `sysctl_nf_log_all_netns` is asked).

use std::fs;
use std::io;

use crate::netns::NetNs;

/// By the number of the address family, IPv4 and IPv6.
const FILES: [&str; 2] = [
    "/proc/sys/net/netfilter/nf_log/2",
    "/proc/sys/net/netfilter/nf_log/10",
];

/// Who logs to netlink.
const OURS: &str = "nfnetlink_log";

/// The setting in one namespace.
#[derive(Debug)]
pub struct Logger {
    ns: NetNs,
    /// What was there before, by file.
    before: Vec<(&'static str, String)>,
}

impl Logger {
    /// Has both families log to netlink.
    ///
    /// # Errors
    ///
    /// When the kernel has no such log, or does not let it be set.
    pub fn set(ns: &NetNs) -> io::Result<Self> {
        let mut logger = Self {
            ns: ns.clone(),
            before: Vec::new(),
        };
        ns.enter(|| {
            for file in FILES {
                let before = match fs::read_to_string(file) {
                    Ok(before) => before,
                    // A kernel without IPv6.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                };
                fs::write(file, OURS)?;
                logger.before.push((file, before.trim().to_owned()));
            }
            Ok(())
        })??;
        Ok(logger)
    }
}

impl Drop for Logger {
    fn drop(&mut self) {
        // It could be set, so it can be set back.
        let _ = self.ns.enter(|| {
            for (file, before) in &self.before {
                let _ = fs::write(file, before);
            }
        });
    }
}
