//! What a machine has run out of, and what to do about it.

use std::io;

use nix::errno::Errno;

/// What to do about too little memory.
pub const OF_MEMORY: &str = "give this machine, or the cgroup that this runs in (`memory.max`), more memory, or run fewer \
     labs at once with -j";

/// What to do about an error that says that something has run out; none for
/// other errors.
#[must_use]
pub fn remedy(error: &io::Error) -> Option<&'static str> {
    Some(match Errno::from_raw(error.raw_os_error()?) {
        Errno::EMFILE | Errno::ENFILE => "raise the limit on open files: `ulimit -n 65536`",
        Errno::ENOSPC => {
            "raise the limits on namespaces: `sysctl -w user.max_net_namespaces=100000 \
             user.max_user_namespaces=100000`"
        }
        Errno::ENOMEM | Errno::ENOBUFS => OF_MEMORY,
        Errno::EAGAIN => {
            "raise the limit on processes: `ulimit -u`, or `pids.max` of the cgroup that this runs \
             in"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_runs_out_is_a_shortage() {
        let of = |errno: Errno| remedy(&errno.into());
        assert!(of(Errno::EMFILE).is_some_and(|text| text.contains("ulimit -n")));
        assert!(of(Errno::EAGAIN).is_some_and(|text| text.contains("ulimit -u")));
        assert_eq!(of(Errno::EPERM), None);
        assert_eq!(remedy(&io::Error::other("anything")), None);
    }
}
