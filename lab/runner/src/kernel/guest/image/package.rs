//! Kernels of the distribution, as packages that apt offers. They are downloaded and unpacked, but
//! never installed.

use std::cmp::Reverse;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tokio::process::Command;

use crate::kernel::error::guest::GuestError;

/// Package that contains a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Name of the package: `linux-image-6.12.117+deb12-cloud-amd64`.
    pub name: String,
    /// Version of the package: `6.12.117-1~deb12u1`.
    pub version: String,
    /// Release of the kernel: `6.12.117+deb12-cloud-amd64`.
    pub release: String,
}

/// Kernel packages of a distribution: the ending of the names of those for guests, and the prefixes
/// of other packages that may contain their modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Flavour {
    ending: &'static str,
    modules: &'static [&'static str],
}

/// Prefix of the names of kernel packages.
const IMAGE: &str = "linux-image-";

const DEBIAN: Flavour = Flavour {
    ending: "-cloud-amd64",
    modules: &[],
};

const UBUNTU: Flavour = Flavour {
    ending: "-generic",
    modules: &["linux-modules-", "linux-modules-extra-"],
};

/// Returns the kernels for guests that apt can download, the newest of each series, newest first.
///
/// # Errors
///
/// When apt is missing or offers none.
pub async fn available(wanted: &str) -> Result<Vec<Package>, GuestError> {
    let none = |why: &str| GuestError::NoKernel {
        wanted: wanted.to_owned(),
        reason: why.to_owned(),
    };
    let system = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let Some(flavour) = flavour(&system) else {
        return Err(none(
            "svclab supports the kernel packages of Debian and Ubuntu only",
        ));
    };
    // One call, because apt may read all package lists for each.
    let pattern = format!("{IMAGE}[0-9]*{}", flavour.ending);
    let arguments = ["show", "--no-all-versions", &pattern];
    let shown = match run("apt-cache", &arguments, Path::new("/")).await {
        Ok(shown) => shown,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(none("this machine has no apt"));
        }
        Err(error) => return Err(none(&format!("cannot start apt-cache: {error}"))),
    };
    let mut found = packages(&lossy_text(&shown.stdout), flavour);
    found.dedup_by(|older, newer| series(&older.release) == series(&newer.release));
    if found.is_empty() {
        return Err(none(
            "apt lists no kernel package for guests; its package lists may be empty",
        ));
    }
    Ok(found)
}

/// Downloads a package and the packages with its modules, and unpacks them below a directory.
pub(crate) async fn fetch(package: &Package, directory: &Path) -> Result<(), GuestError> {
    let failed = |why: String| GuestError::NoKernel {
        wanted: package.release.clone(),
        reason: why,
    };
    let mut names = vec![format!("{}={}", package.name, package.version)];
    let system = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    for prefix in flavour(&system).map_or(&[][..], |flavour| flavour.modules) {
        let name = format!("{prefix}{}", package.release);
        if version(&name).await.is_some() {
            names.push(name);
        }
    }
    let mut arguments = vec!["-q", "-o", "Dpkg::Use-Pty=0", "download"];
    arguments.extend(names.iter().map(String::as_str));
    check("apt-get", run("apt-get", &arguments, directory).await).map_err(failed)?;
    let packages = std::fs::read_dir(directory).map_err(|error| failed(error.to_string()))?;
    let packages: Vec<PathBuf> = packages
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .collect();
    for file in packages {
        let arguments = ["-x", &file.to_string_lossy(), "."];
        check("dpkg-deb", run("dpkg-deb", &arguments, directory).await).map_err(failed)?;
        let _ = std::fs::remove_file(file);
    }
    Ok(())
}

/// Returns the first two numbers of a release, which name its series: `6.12`.
#[must_use]
pub fn series(release: &str) -> &str {
    let end = release
        .match_indices(|letter: char| !letter.is_ascii_digit())
        .map(|(at, _)| at)
        .nth(1);
    &release[..end.unwrap_or(release.len())]
}

/// Returns the numbers of a release, by which releases sort by age.
pub(crate) fn version_numbers(release: &str) -> Vec<u64> {
    release
        .split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect()
}

fn flavour(os_release: &str) -> Option<Flavour> {
    let value_of = |key: &str| {
        let line = os_release.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap_or_default().trim_matches('"').to_owned()
    };
    let (distribution, similar_distributions) = (value_of("ID="), value_of("ID_LIKE="));
    let is_distribution = |name: &str| {
        distribution == name
            || similar_distributions
                .split_whitespace()
                .any(|word| word == name)
    };
    if is_distribution("ubuntu") {
        Some(UBUNTU)
    } else if is_distribution("debian") {
        Some(DEBIAN)
    } else {
        None
    }
}

/// Returns the kernel packages that `apt-cache show` describes, newest first. A name with fewer than
/// 3 numbers is an empty package for the newest release of a series.
fn packages(shown: &str, flavour: Flavour) -> Vec<Package> {
    let mut packages: Vec<Package> = shown
        .split("\n\n")
        .filter_map(|description| {
            let value = |field: &str| {
                description
                    .lines()
                    .find_map(|line| line.strip_prefix(field))
            };
            let name = value("Package: ")?.trim();
            let release = name.strip_prefix(IMAGE)?;
            let base = release.split('-').next()?;
            let is_release = release.ends_with(flavour.ending)
                && release.starts_with(|first: char| first.is_ascii_digit())
                && base.split('.').count() > 2;
            is_release.then_some(Package {
                name: name.to_owned(),
                release: release.to_owned(),
                version: value("Version: ")?.trim().to_owned(),
            })
        })
        .collect();
    packages.sort_by_key(|package| Reverse(version_numbers(&package.release)));
    packages
}

/// Returns the version of a package that apt would download. `None` if apt offers none.
async fn version(name: &str) -> Option<String> {
    let arguments = ["show", "--no-all-versions", name];
    let shown = run("apt-cache", &arguments, Path::new("/")).await.ok()?;
    let text = lossy_text(&shown.stdout);
    let version = text
        .lines()
        .find_map(|line| line.strip_prefix("Version: "))?;
    Some(version.trim().to_owned())
}

async fn run(program: &str, arguments: &[&str], directory: &Path) -> io::Result<Output> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(directory)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    // SAFETY: only one system call is made between fork and exec, and this call is allowed there.
    unsafe {
        command.pre_exec(|| {
            nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
            Ok(())
        });
    }
    command.output().await
}

fn check(program: &str, output: io::Result<Output>) -> Result<(), String> {
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let stderr = lossy_text(&output.stderr);
            let message = stderr
                .lines()
                .find(|line| line.starts_with("E: "))
                .unwrap_or_else(|| stderr.trim());
            Err(format!("{program} failed: {message}"))
        }
        Err(error) => Err(format!("cannot start {program}: {error}")),
    }
}

fn lossy_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn releases(names: &[&str], flavour: Flavour) -> Vec<String> {
        let shown = names.iter().map(|name| {
            format!("Package: {name}\nSource: linux\nVersion: 1\nDepends: linux-image-9.9.9\n\n")
        });
        let packages = packages(&shown.collect::<String>(), flavour).into_iter();
        packages.map(|package| package.release).collect()
    }

    #[test]
    fn packages_are_sorted_newest_first() {
        let names = [
            "linux-image-6.1.0-9-cloud-amd64",
            "linux-image-6.1.0-56-cloud-amd64",
            "linux-image-6.1.0-56-cloud-amd64-dbg",
            "linux-image-6.12-cloud-amd64",
            "linux-image-6.12.117+deb12-cloud-amd64",
            "linux-image-6.12.117+deb12-cloud-amd64-unsigned",
            "linux-image-6.12.9+deb12-cloud-amd64",
            "linux-image-6.1.0-56-amd64",
            "linux-image-cloud-amd64",
        ];
        assert_eq!(
            releases(&names, DEBIAN),
            [
                "6.12.117+deb12-cloud-amd64",
                "6.12.9+deb12-cloud-amd64",
                "6.1.0-56-cloud-amd64",
                "6.1.0-9-cloud-amd64",
            ]
        );
        let names = [
            "linux-image-6.8.0-45-generic",
            "linux-image-6.8.0-9-generic",
            "linux-image-6.8.0-45-lowlatency",
            "linux-image-generic",
            "linux-image-unsigned-6.8.0-45-generic",
        ];
        assert_eq!(
            releases(&names, UBUNTU),
            ["6.8.0-45-generic", "6.8.0-9-generic"]
        );
    }

    #[test]
    fn series_is_first_two_numbers() {
        assert_eq!(series("6.12.117+deb12-cloud-amd64"), "6.12");
        assert_eq!(series("6.1.0-56-cloud-amd64"), "6.1");
        assert_eq!(series("7.0-rc1"), "7.0");
        assert_eq!(series("6.1"), "6.1");
    }

    #[test]
    fn flavour_is_derived_from_os_release() {
        assert_eq!(flavour("ID=debian\nVERSION_ID=\"12\"\n"), Some(DEBIAN));
        assert_eq!(flavour("NAME=U\nID=ubuntu\nID_LIKE=debian\n"), Some(UBUNTU));
        assert_eq!(
            flavour("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"),
            Some(UBUNTU)
        );
        assert_eq!(flavour("ID=fedora\n"), None);
        assert_eq!(flavour(""), None);
    }
}
