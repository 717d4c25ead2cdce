//! Kernels in the cache, and how a requested kernel is added to them.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::cache::digest;
use super::cache::{Cache, CacheEntry};
use super::image::package::{self, Package, series, version_numbers};
use super::image::{self, FORMAT_VERSION, Image};
use super::snapshot;
use crate::kernel::error::guest::GuestError;

/// Kind of the cache entries of kernels.
pub const KERNELS: &str = "kernels";

/// Kernel that a user requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelRequest {
    /// Newest kernel in the cache, or else the newest of the distribution.
    Newest,
    /// Newest kernel of a series, `6.12`, or the kernel of a full release.
    Series(String),
    /// Kernel of the user.
    UserKernel {
        /// Path of the kernel file.
        kernel: PathBuf,
        /// Directory of the kernel's modules. `None` if it must be searched.
        modules: Option<PathBuf>,
    },
}

impl std::fmt::Display for KernelRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Newest => f.write_str("of any version"),
            Self::Series(series) => f.write_str(series),
            Self::UserKernel { kernel, .. } => kernel.display().fmt(f),
        }
    }
}

/// Returns all kernels in the cache, newest first. Their files are not checked.
#[must_use]
pub fn cached_kernels(cache: &Cache) -> Vec<CacheEntry<Image>> {
    let mut kept: Vec<CacheEntry<Image>> = cache
        .keys(KERNELS)
        .iter()
        .filter_map(|key| cache.peek(KERNELS, key))
        .collect();
    kept.sort_by_key(|entry| Reverse(version_numbers(&entry.metadata.release)));
    kept
}

/// Returns the number of snapshots of a kernel, and the disk space that they use, in bytes.
#[must_use]
pub fn snapshots(cache: &Cache, kernel: &CacheEntry<Image>) -> (usize, u64) {
    let snapshots = snapshot::snapshots_of_kernel(cache, kernel.key());
    let disk_usage = snapshots.iter().flat_map(|(_, entry)| {
        let files = std::fs::read_dir(&entry.directory).into_iter().flatten();
        files.filter_map(|file| Some(file.ok()?.metadata().ok()?.blocks() * 512))
    });
    (snapshots.len(), disk_usage.sum())
}

/// Removes a kernel and its snapshots. Running guests continue.
///
/// # Errors
///
/// When the cache cannot be written.
pub async fn remove(cache: &Cache, kernel: &CacheEntry<Image>) -> Result<(), GuestError> {
    let key = kernel.key();
    let _kernel = cache.lock(KERNELS, key).await?;
    let _snapshots = cache.lock(snapshot::SNAPSHOTS, key).await?;
    for (snapshot, _) in snapshot::snapshots_of_kernel(cache, key) {
        cache.remove(snapshot::SNAPSHOTS, &snapshot)?;
    }
    cache.remove(KERNELS, key)
}

/// Returns the requested kernel. Downloads the kernel if the cache does not contain it.
///
/// # Errors
///
/// When the kernel is not available or cannot be stored.
pub async fn provide(
    cache: &Cache,
    wanted: &KernelRequest,
) -> Result<CacheEntry<Image>, GuestError> {
    if let KernelRequest::UserKernel { kernel, modules } = wanted {
        return provide_user_kernel(cache, kernel, modules.as_deref()).await;
    }
    match find_undamaged(cache, wanted) {
        Some(entry) => Ok(entry),
        None => fetch(cache, &find_package(wanted).await?, false).await,
    }
}

/// Returns the newest requested kernel in the cache whose files are undamaged. Kernels of the user
/// are excluded.
#[must_use]
pub fn find_undamaged(cache: &Cache, wanted: &KernelRequest) -> Option<CacheEntry<Image>> {
    cached_kernels(cache)
        .into_iter()
        .filter(|entry| !entry.metadata.own && matches(wanted, &entry.metadata.release))
        .find_map(|entry| undamaged_entry(cache, &entry.metadata.release))
}

/// Returns every series of kernels that is in the cache or that apt can download.
///
/// # Errors
///
/// When there is none.
pub async fn every_series(cache: &Cache) -> Result<Vec<KernelRequest>, GuestError> {
    let mut releases: Vec<String> = cached_kernels(cache)
        .into_iter()
        .filter(|entry| !entry.metadata.own)
        .map(|entry| entry.metadata.release)
        .collect();
    match package::available("of any version").await {
        Ok(packages) => releases.extend(packages.into_iter().map(|package| package.release)),
        Err(error) if releases.is_empty() => return Err(error),
        Err(error) => tracing::warn!("using only the kernels in the cache: {error}"),
    }
    let mut seen_series = HashSet::new();
    Ok(releases
        .iter()
        .map(|release| series(release).to_owned())
        .filter(|series| seen_series.insert(series.clone()))
        .map(KernelRequest::Series)
        .collect())
}

/// Returns the package that apt would download for a request.
///
/// # Errors
///
/// When there is none.
pub async fn find_package(wanted: &KernelRequest) -> Result<Package, GuestError> {
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
            reason: format!("apt offers {}", list.join(", ")),
        })
}

/// Whether a kernel of this release is a requested one.
#[must_use]
pub fn matches(wanted: &KernelRequest, release: &str) -> bool {
    match wanted {
        KernelRequest::Newest => true,
        KernelRequest::Series(wanted) => series(release) == wanted || release == wanted,
        KernelRequest::UserKernel { .. } => false,
    }
}

/// Returns a kernel in the cache whose files are undamaged and of the current format version.
fn undamaged_entry(cache: &Cache, key: &str) -> Option<CacheEntry<Image>> {
    cache
        .entry(KERNELS, key)
        .filter(|entry: &CacheEntry<Image>| entry.metadata.format == FORMAT_VERSION)
}

/// Downloads a package and stores its kernel. A kernel in the cache is downloaded again only if it
/// is damaged or if the caller asks for this.
///
/// # Errors
///
/// When the kernel cannot be downloaded or stored.
pub async fn fetch(
    cache: &Cache,
    package: &Package,
    is_forced: bool,
) -> Result<CacheEntry<Image>, GuestError> {
    let key = package.release.as_str();
    let _lock = cache.lock(KERNELS, key).await?;
    // Another process may have stored the kernel while this process waited.
    if let Some(entry) = undamaged_entry(cache, key)
        && !is_forced
    {
        return Ok(entry);
    }
    tracing::info!("fetching {} {}", package.name, package.version);
    let new_entry = cache.new_entry_directory(KERNELS, key)?;
    let unpacked =
        tempfile::tempdir_in(new_entry.path()).map_err(cache.error_of("unpack a kernel"))?;
    package::fetch(package, unpacked.path()).await?;
    let kernel = unpacked.path().join("boot").join(format!("vmlinuz-{key}"));
    let Some(modules) = image::find_modules(None, &kernel, key) else {
        return Err(GuestError::NoKernel {
            wanted: key.to_owned(),
            reason: format!("the package {} contains no modules", package.name),
        });
    };
    let (release, modules) = image::create_files(cache, &kernel, &modules, new_entry.path())?;
    unpacked
        .close()
        .map_err(cache.error_of("remove an unpacked kernel"))?;
    let metadata = Image {
        format: FORMAT_VERSION,
        release,
        from: format!("{} {}", package.name, package.version),
        own: false,
        modules,
    };
    cache.store(KERNELS, key, new_entry, metadata)
}

/// Returns the user's own kernel, as its file and its modules are now.
async fn provide_user_kernel(
    cache: &Cache,
    kernel: &Path,
    modules: Option<&Path>,
) -> Result<CacheEntry<Image>, GuestError> {
    let invalid_image = |why: String| GuestError::InvalidImage {
        file: kernel.to_owned(),
        reason: why,
    };
    let bytes = std::fs::read(kernel).map_err(|error| invalid_image(error.to_string()))?;
    let release = image::release(&bytes)
        .ok_or_else(|| invalid_image("not a Linux kernel for this processor".to_owned()))?;
    let found = image::find_modules(modules, kernel, &release)
        .ok_or_else(|| invalid_image(format!("cannot find the modules of {release}")))?;
    let mut files = Vec::new();
    list_files(&found, &mut files).map_err(|error| invalid_image(error.to_string()))?;
    files.sort();
    let key = format!(
        "own-{}",
        digest::name_of_parts(&[&digest::bytes_digest(&bytes), &files.join("\n")])
    );
    if let Some(entry) = undamaged_entry(cache, &key) {
        return Ok(entry);
    }
    let _lock = cache.lock(KERNELS, &key).await?;
    if let Some(entry) = undamaged_entry(cache, &key) {
        return Ok(entry);
    }
    let new_entry = cache.new_entry_directory(KERNELS, &key)?;
    let (release, modules) = image::create_files(cache, kernel, &found, new_entry.path())?;
    let metadata = Image {
        format: FORMAT_VERSION,
        release,
        from: kernel.display().to_string(),
        own: true,
        modules,
    };
    cache.store(KERNELS, &key, new_entry, metadata)
}

/// Lists every file below a directory, with metadata that changes when the file does.
fn list_files(directory: &Path, files: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_symlink() {
            // `build` and `source` are links to trees that no guest loads.
            continue;
        }
        if path.is_dir() {
            list_files(&path, files)?;
        } else {
            let identity = digest::FileIdentity::from_file(&path)?;
            files.push(format!("{} {identity:?}", path.display()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_series_and_full_release() {
        let wanted = |text: &str| KernelRequest::Series(text.to_owned());
        let release = "6.12.117+deb12-cloud-amd64";
        assert!(matches(&wanted("6.12"), release));
        assert!(matches(&wanted(release), release));
        assert!(!matches(&wanted("6.1"), release));
        assert!(matches(&KernelRequest::Newest, release));
    }
}
