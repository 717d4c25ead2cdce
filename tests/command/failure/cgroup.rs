//! A private cgroup for a test, on machines that permit one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum time for which a cgroup stays busy after its processes have ended.
const MAX_BUSY_TIME: Duration = Duration::from_mins(1);

/// Pause between two attempts to remove the cgroup.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Cgroup that is removed when dropped.
pub struct Cgroup(PathBuf);

impl Drop for Cgroup {
    fn drop(&mut self) {
        // All processes have ended; `cgroup.kill`, where present, ends the rest.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        // The kernel counts ended processes for some more seconds.
        let begun = Instant::now();
        while fs::remove_dir(&self.0)
            .is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
            && begun.elapsed() < MAX_BUSY_TIME
        {
            std::thread::sleep(RETRY_INTERVAL);
        }
    }
}

impl Cgroup {
    /// Creates a cgroup with limits of a controller (`pids`, `memory`). Returns `None` if no such
    /// cgroup can be created. The parent is this process's cgroup, or the root if that cgroup
    /// cannot have children because it contains processes.
    pub fn new(controller: &str, name: &str) -> Option<Self> {
        let name = format!("svclab-{name}-{}", std::process::id());
        let memberships = fs::read_to_string("/proc/self/cgroup").ok()?;
        let old = memberships.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_controller = controllers
                .split(',')
                .any(|name_in_list| name_in_list == controller);
            is_controller.then(|| join_path(&format!("/sys/fs/cgroup/{controller}"), path))
        });
        let places = if let Some(place) = old {
            vec![place]
        } else {
            let path = memberships
                .lines()
                .find_map(|line| line.strip_prefix("0::"))?;
            vec![
                join_path("/sys/fs/cgroup", path),
                PathBuf::from("/sys/fs/cgroup"),
            ]
        };
        places.iter().find_map(|place| {
            let made = place.join(&name);
            fs::create_dir(&made).ok()?;
            let made = Self(made);
            // In cgroup v2, a controller's files exist only where the controller is enabled.
            made.limit_file(controller).is_some().then_some(made)
        })
    }

    fn limit_file(&self, controller: &str) -> Option<PathBuf> {
        let names: &[&str] = match controller {
            "memory" => &["memory.max", "memory.limit_in_bytes"],
            _ => &["pids.max"],
        };
        let files = names.iter().map(|name| self.0.join(name));
        { files }.find(|file| file.exists())
    }

    /// Sets the limit of a controller.
    pub fn set_limit(&self, controller: &str, to: u64) -> io::Result<()> {
        let file = self.limit_file(controller).ok_or(io::ErrorKind::NotFound)?;
        fs::write(file, to.to_string())
    }

    /// Returns the file to which a process writes its PID to join the cgroup.
    pub fn processes(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

fn join_path(root: &str, path: &str) -> PathBuf {
    Path::new(root).join(path.trim_start_matches('/'))
}
