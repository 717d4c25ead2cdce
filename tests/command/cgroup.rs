//! A cgroup of a test's own, where this machine lets one be made.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a cgroup may stay busy when all in it have ended.
const LINGERING: Duration = Duration::from_mins(1);

/// The pause between two attempts to remove it.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A cgroup; it goes with its guard.
pub struct Cgroup(PathBuf);

impl Drop for Cgroup {
    fn drop(&mut self) {
        // What ran in it has ended, or is ended with it where there is such a file.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        // The kernel counts those who have ended for some seconds more.
        let begun = Instant::now();
        while fs::remove_dir(&self.0)
            .is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
            && begun.elapsed() < LINGERING
        {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Cgroup {
    /// One in which that controller (`pids`, `memory`) sets limits; none where no
    /// such cgroup can be made. It lies below the one this process is in, or, where
    /// that one holds processes and so cannot have any, below the topmost.
    pub fn with(controller: &str, name: &str) -> Option<Self> {
        let name = format!("svclab-{name}-{}", std::process::id());
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let old = own.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_of = controllers.split(',').any(|of| of == controller);
            is_of.then(|| below(&format!("/sys/fs/cgroup/{controller}"), path))
        });
        let places = if let Some(place) = old {
            vec![place]
        } else {
            let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
            vec![
                below("/sys/fs/cgroup", path),
                PathBuf::from("/sys/fs/cgroup"),
            ]
        };
        places.iter().find_map(|place| {
            let made = place.join(&name);
            fs::create_dir(&made).ok()?;
            let made = Self(made);
            // In version 2 the files of a controller are there where it is enabled.
            made.limit_of(controller).is_some().then_some(made)
        })
    }

    fn limit_of(&self, controller: &str) -> Option<PathBuf> {
        let names: &[&str] = match controller {
            "memory" => &["memory.max", "memory.limit_in_bytes"],
            _ => &["pids.max"],
        };
        let files = names.iter().map(|name| self.0.join(name));
        { files }.find(|file| file.exists())
    }

    /// Sets the limit of a controller.
    pub fn limit(&self, controller: &str, to: u64) -> io::Result<()> {
        let file = self.limit_of(controller).ok_or(io::ErrorKind::NotFound)?;
        fs::write(file, to.to_string())
    }

    /// Where a process writes its number to be in it.
    pub fn processes(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

fn below(root: &str, path: &str) -> PathBuf {
    Path::new(root).join(path.trim_start_matches('/'))
}
