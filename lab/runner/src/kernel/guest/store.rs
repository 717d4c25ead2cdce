//! The kernels that are kept, and how one that is wanted comes among them.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::boot;
use super::cache::{Cache, Entry};
use super::digest;
use super::error::GuestError;
use super::image::{self, FORMAT, Image};
use super::package::{self, Package, age, series};

/// The cache's kind of entry for kernels.
pub const KERNELS: &str = "kernels";

/// Which kernel a user wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The newest that is kept, or else that the distribution has.
    Newest,
    /// The newest of a series, `6.12`, or a whole release.
    Series(String),
    /// A user's own.
    Own {
        /// Its file.
        kernel: PathBuf,
        /// The directory of its modules, if it is not to be looked for.
        modules: Option<PathBuf>,
    },
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Newest => f.write_str("of any version"),
            Self::Series(series) => f.write_str(series),
            Self::Own { kernel, .. } => kernel.display().fmt(f),
        }
    }
}

/// All kernels that are kept, newest first. Their files are not looked at.
#[must_use]
pub fn kept(cache: &Cache) -> Vec<Entry<Image>> {
    let mut kept: Vec<Entry<Image>> = cache
        .keys(KERNELS)
        .iter()
        .filter_map(|key| cache.peek(KERNELS, key))
        .collect();
    kept.sort_by_key(|entry| Reverse(age(&entry.about.release)));
    kept
}

/// The snapshots of a kernel: how many there are, and the room they take on the
/// disk, in bytes.
#[must_use]
pub fn snapshots(cache: &Cache, kernel: &Entry<Image>) -> (usize, u64) {
    let kept = boot::of_kernel(cache, kernel.key());
    let room = kept.iter().flat_map(|(_, entry)| {
        let files = std::fs::read_dir(&entry.directory).into_iter().flatten();
        files.filter_map(|file| Some(file.ok()?.metadata().ok()?.blocks() * 512))
    });
    (kept.len(), room.sum())
}

/// Removes a kernel and its snapshots. Guests that run go on.
///
/// # Errors
///
/// When the cache cannot be written.
pub async fn remove(cache: &Cache, kernel: &Entry<Image>) -> Result<(), GuestError> {
    let key = kernel.key();
    let _kernel = cache.lock(KERNELS, key).await?;
    let _snapshots = cache.lock(boot::SNAPSHOTS, key).await?;
    for (snapshot, _) in boot::of_kernel(cache, key) {
        cache.discard(boot::SNAPSHOTS, &snapshot)?;
    }
    cache.discard(KERNELS, key)
}

/// The kernel that is wanted, fetched if it is not kept.
///
/// # Errors
///
/// When it is not to be had, or cannot be kept.
pub async fn provide(cache: &Cache, wanted: &Wanted) -> Result<Entry<Image>, GuestError> {
    if let Wanted::Own { kernel, modules } = wanted {
        return own(cache, kernel, modules.as_deref()).await;
    }
    match whole(cache, wanted) {
        Some(entry) => Ok(entry),
        None => fetch(cache, &find(wanted).await?, false).await,
    }
}

/// The newest kept kernel that is wanted, whose files are right; users' own are
/// not among them.
#[must_use]
pub fn whole(cache: &Cache, wanted: &Wanted) -> Option<Entry<Image>> {
    kept(cache)
        .into_iter()
        .filter(|entry| !entry.about.own && matches(wanted, &entry.about.release))
        .find_map(|entry| undamaged(cache, &entry.about.release))
}

/// Every series of kernels that is kept or that apt can get.
///
/// # Errors
///
/// When there is none.
pub async fn every_series(cache: &Cache) -> Result<Vec<Wanted>, GuestError> {
    let mut releases: Vec<String> = kept(cache)
        .into_iter()
        .filter(|entry| !entry.about.own)
        .map(|entry| entry.about.release)
        .collect();
    match package::available("of any version").await {
        Ok(packages) => releases.extend(packages.into_iter().map(|package| package.release)),
        Err(error) if releases.is_empty() => return Err(error),
        Err(error) => tracing::warn!("only kept kernels are used: {error}"),
    }
    let mut known = HashSet::new();
    Ok(releases
        .iter()
        .map(|release| series(release).to_owned())
        .filter(|series| known.insert(series.clone()))
        .map(Wanted::Series)
        .collect())
}

/// The package that apt would get for what is wanted.
///
/// # Errors
///
/// When there is none.
pub async fn find(wanted: &Wanted) -> Result<Package, GuestError> {
    let available = package::available(&wanted.to_string()).await?;
    let list: Vec<String> = available
        .iter()
        .map(|package| series(&package.release).to_owned())
        .collect();
    available
        .into_iter()
        .find(|package| matches(wanted, &package.release))
        .ok_or_else(|| GuestError::NoKernel {
            wanted: wanted.to_string(),
            why: format!("apt has {}", list.join(", ")),
        })
}

/// Whether a kernel of that release is one that is wanted.
#[must_use]
pub fn matches(wanted: &Wanted, release: &str) -> bool {
    match wanted {
        Wanted::Newest => true,
        Wanted::Series(wanted) => series(release) == wanted || release == wanted,
        Wanted::Own { .. } => false,
    }
}

/// A kept kernel whose files are right and of this svclab's making.
fn undamaged(cache: &Cache, key: &str) -> Option<Entry<Image>> {
    cache
        .entry(KERNELS, key)
        .filter(|entry: &Entry<Image>| entry.about.format == FORMAT)
}

/// Fetches a package and keeps its kernel; one that is kept is fetched again
/// only if it is damaged, or `anew` is asked for.
///
/// # Errors
///
/// When it cannot be fetched or kept.
pub async fn fetch(
    cache: &Cache,
    package: &Package,
    anew: bool,
) -> Result<Entry<Image>, GuestError> {
    let key = package.release.as_str();
    let _lock = cache.lock(KERNELS, key).await?;
    // While this one waited another may have made it.
    if let Some(entry) = undamaged(cache, key)
        && !anew
    {
        return Ok(entry);
    }
    tracing::info!("fetching {} {}", package.name, package.version);
    let made = cache.making(KERNELS, key)?;
    let unpacked = tempfile::tempdir_in(made.path()).map_err(cache.cannot("unpack a kernel"))?;
    package::fetch(package, unpacked.path()).await?;
    let kernel = unpacked.path().join("boot").join(format!("vmlinuz-{key}"));
    let Some(modules) = image::find_modules(None, &kernel, key) else {
        return Err(GuestError::NoKernel {
            wanted: key.to_owned(),
            why: format!("the package {} holds no modules", package.name),
        });
    };
    let (release, modules) = image::make(cache, &kernel, &modules, made.path())?;
    unpacked
        .close()
        .map_err(cache.cannot("remove an unpacked kernel"))?;
    let about = Image {
        format: FORMAT,
        release,
        from: format!("{} {}", package.name, package.version),
        own: false,
        modules,
    };
    cache.keep(KERNELS, key, made, about)
}

/// A user's own kernel, as it and its modules are now.
async fn own(
    cache: &Cache,
    kernel: &Path,
    modules: Option<&Path>,
) -> Result<Entry<Image>, GuestError> {
    let wrong = |why: String| GuestError::Image {
        file: kernel.to_owned(),
        why,
    };
    let bytes = std::fs::read(kernel).map_err(|error| wrong(error.to_string()))?;
    let release = image::release(&bytes)
        .ok_or_else(|| wrong("it is no Linux kernel for this processor".to_owned()))?;
    let found = image::find_modules(modules, kernel, &release)
        .ok_or_else(|| wrong(format!("the modules of {release} are not to be found")))?;
    let mut listed = Vec::new();
    list(&found, &mut listed).map_err(|error| wrong(error.to_string()))?;
    listed.sort();
    let key = format!(
        "own-{}",
        digest::name(&[&digest::of_bytes(&bytes), &listed.join("\n")])
    );
    if let Some(entry) = undamaged(cache, &key) {
        return Ok(entry);
    }
    let _lock = cache.lock(KERNELS, &key).await?;
    if let Some(entry) = undamaged(cache, &key) {
        return Ok(entry);
    }
    let made = cache.making(KERNELS, &key)?;
    let (release, modules) = image::make(cache, kernel, &found, made.path())?;
    let about = Image {
        format: FORMAT,
        release,
        from: kernel.display().to_string(),
        own: true,
        modules,
    };
    cache.keep(KERNELS, &key, made, about)
}

/// Every file below a directory, with what changes when it does.
fn list(directory: &Path, into: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_symlink() {
            // `build` and `source` lead to trees that no guest loads.
            continue;
        }
        if path.is_dir() {
            list(&path, into)?;
        } else {
            let identity = digest::Identity::of(&path)?;
            into.push(format!("{} {identity:?}", path.display()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_means_its_newest_and_a_release_itself() {
        let wanted = |text: &str| Wanted::Series(text.to_owned());
        let release = "6.12.117+deb12-cloud-amd64";
        assert!(matches(&wanted("6.12"), release));
        assert!(matches(&wanted(release), release));
        assert!(!matches(&wanted("6.1"), release));
        assert!(matches(&Wanted::Newest, release));
    }
}
