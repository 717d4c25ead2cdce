//! Paths of files relative to the root of their repository, as CI services show them.

use std::path::{Path, PathBuf};

/// Root of the repository in the current directory.
pub(crate) struct Repository(
    /// Directory without links; `None` if the current directory cannot be read.
    Option<PathBuf>,
);

impl Repository {
    /// Finds the repository: the nearest directory with an entry `.git`, otherwise the current
    /// directory.
    pub(crate) fn find() -> Self {
        let current = std::env::current_dir().and_then(|path| path.canonicalize());
        Self(current.ok().map(|current| root(&current).to_owned()))
    }

    /// Returns the path of a file relative to the root. A path outside the repository is absolute, and
    /// one that is not that of a file is unchanged.
    pub(crate) fn path(&self, file: &str) -> String {
        let (Some(root), Ok(path)) = (&self.0, Path::new(file).canonicalize()) else {
            return file.to_owned();
        };
        let path = path.strip_prefix(root).unwrap_or(&path);
        path.display().to_string()
    }
}

/// Returns the root of the repository that contains a directory.
fn root(directory: &Path) -> &Path {
    let mut above = directory.ancestors();
    // A work tree of git has a file with this name.
    above
        .find(|path| path.join(".git").exists())
        .unwrap_or(directory)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn path_is_relative_to_the_repository() {
        let directory = tempfile::tempdir().expect("a directory");
        let top = directory.path().canonicalize().expect("a path");
        let labs = top.join("tests/labs");
        fs::create_dir_all(&labs).expect("a directory");
        let file = labs.join("lab.yaml");
        fs::write(&file, "").expect("a file");
        assert_eq!(root(&labs), labs);
        fs::write(top.join(".git"), "gitdir: elsewhere").expect("a file");
        assert_eq!(root(&labs), top);
        let repository = Repository(Some(top.clone()));
        let path = |file: &Path| repository.path(&file.display().to_string());
        assert_eq!(path(&file), "tests/labs/lab.yaml");
        assert_eq!(
            path(&labs.join("../labs/./lab.yaml")),
            "tests/labs/lab.yaml"
        );
        assert_eq!(path(Path::new("/proc/self/../uptime")), "/proc/uptime");
        for other in ["embedded:node-port.yaml", "<stdin>", "missing.yaml"] {
            assert_eq!(repository.path(other), other);
        }
        assert_eq!(Repository(None).path("/proc/uptime"), "/proc/uptime");
    }
}
