//! Recognizes errors for exhausted resources, and gives advice.

use std::io;

use rustix::io::Errno;

/// Advice for a lack of memory.
pub const OF_MEMORY: &str = "give this machine, or the cgroup that this runs in (`memory.max`), more memory, or run fewer \
     labs at once with -j";

/// Advice for a lack of open files.
const OF_FILES: &str = "raise the limit on open files: `ulimit -n 65536`";

/// Advice for a lack of processes.
const OF_PROCESSES: &str =
    "raise the limit on processes: `ulimit -u`, or `pids.max` of the cgroup that this runs in";

/// Whether an error reports a lack of processes, open files or memory.
#[must_use]
pub fn is_of_this_process(error: &io::Error) -> bool {
    remedy(error).is_some_and(is_remedy)
}

/// Whether a text is the advice for a lack of processes, open files or memory.
#[must_use]
pub fn is_remedy(text: &str) -> bool {
    [OF_FILES, OF_PROCESSES, OF_MEMORY].contains(&text)
}

/// Returns the advice for an error. `None` if the error does not report an exhausted resource.
#[must_use]
pub fn remedy(error: &io::Error) -> Option<&'static str> {
    Some(match Errno::from_io_error(error)? {
        Errno::MFILE | Errno::NFILE => OF_FILES,
        Errno::NOSPC => {
            "raise the limits on namespaces: `sysctl -w user.max_net_namespaces=100000 \
             user.max_user_namespaces=100000`"
        }
        Errno::NOMEM | Errno::NOBUFS => OF_MEMORY,
        Errno::AGAIN => OF_PROCESSES,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_runs_out_is_a_shortage() {
        let of = |errno: Errno| remedy(&errno.into());
        assert!(of(Errno::MFILE).is_some_and(|text| text.contains("ulimit -n")));
        assert!(of(Errno::AGAIN).is_some_and(|text| text.contains("ulimit -u")));
        assert_eq!(of(Errno::PERM), None);
        assert_eq!(remedy(&io::Error::other("anything")), None);
    }
}
