//! Recognizes errors for exhausted resources, and gives advice.

use std::io;

use rustix::io::Errno;

/// Advice for a lack of memory.
pub const MEMORY_REMEDY: &str = "give this machine or its cgroup (`memory.max`) more memory, or \
                                 run fewer labs in parallel with -j";

/// Advice for a lack of open files.
const OPEN_FILES_REMEDY: &str = "raise the limit on open files: `ulimit -n 65536`";

/// Advice for a lack of processes.
const PROCESSES_REMEDY: &str =
    "raise the limit on processes: `ulimit -u`, or `pids.max` of the cgroup";

/// Whether an error reports a lack of processes, open files or memory.
#[must_use]
pub fn is_shortage(error: &io::Error) -> bool {
    remedy(error).is_some_and(is_remedy)
}

/// Whether a text is the advice for a lack of processes, open files or memory.
#[must_use]
pub fn is_remedy(text: &str) -> bool {
    [OPEN_FILES_REMEDY, PROCESSES_REMEDY, MEMORY_REMEDY].contains(&text)
}

/// Returns the advice for an error. `None` if the error does not report an exhausted resource.
#[must_use]
pub fn remedy(error: &io::Error) -> Option<&'static str> {
    Some(match Errno::from_io_error(error)? {
        Errno::MFILE | Errno::NFILE => OPEN_FILES_REMEDY,
        Errno::NOSPC => {
            "raise the limits on namespaces: `sysctl -w user.max_net_namespaces=100000 \
             user.max_user_namespaces=100000`"
        }
        Errno::NOMEM | Errno::NOBUFS => MEMORY_REMEDY,
        Errno::AGAIN => PROCESSES_REMEDY,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_only_for_exhausted_resources() {
        let remedy_for = |errno: Errno| remedy(&errno.into());
        assert!(remedy_for(Errno::MFILE).is_some_and(|text| text.contains("ulimit -n")));
        assert!(remedy_for(Errno::AGAIN).is_some_and(|text| text.contains("ulimit -u")));
        assert_eq!(remedy_for(Errno::PERM), None);
        assert_eq!(remedy(&io::Error::other("anything")), None);
    }
}
