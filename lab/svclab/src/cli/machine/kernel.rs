//! Implements `svclab kernel`.

use std::fmt::Write as _;

use crate::cli::args::KernelCommand;
use crate::cli::error::{CommandResult, Outcome};
use crate::cli::interrupt::run_interruptible;
use crate::cli::output::print;
use svclab_runner::kernel::guest::{self, Cache, CacheEntry, Guest, Image, KernelRequest, series};
use svclab_runner::kernel::{GuestError, Kernel, KernelError};

/// Lists, fetches and removes kernels of guests, or prints their cache key or path.
pub(crate) fn kernel(command: &KernelCommand) -> CommandResult {
    let text = run_interruptible(async {
        let cache = Cache::from_environment()?;
        match command {
            KernelCommand::List => list_kernels(&cache).await,
            KernelCommand::Fetch { kernels, boot } => fetch_kernels(&cache, kernels, *boot).await,
            KernelCommand::Rm { kernels, all } => remove_kernels(&cache, kernels, *all).await,
            KernelCommand::CacheKey { kernel } => cache_key(kernel.as_deref()).await,
            KernelCommand::Path { kernel } => kernel_path(&cache, kernel.as_deref()),
        }
    })??;
    print(&text)?;
    Ok(Outcome::SUCCESS)
}

/// Lists all cached kernels, and the kernels from apt that are not cached.
async fn list_kernels(cache: &Cache) -> Result<String, KernelError> {
    let kept = guest::cached_kernels(cache);
    let mut text = String::new();
    let mut line = |release: &str, state: &str, from: &str| {
        let _ = writeln!(text, "{release:<32} {state:<32} {from}");
    };
    for entry in &kept {
        let (snapshots, room) = guest::snapshots(cache, entry);
        let state = match snapshots {
            0 => format!("cached, {}", megabytes(entry.bytes)),
            1 => format!("cached, {}, 1 snapshot", megabytes(entry.bytes + room)),
            many => format!(
                "cached, {}, {many} snapshots",
                megabytes(entry.bytes + room)
            ),
        };
        line(&entry.metadata.release, &state, &entry.metadata.from);
    }
    match guest::available("of any version").await {
        Ok(packages) => {
            for package in packages {
                if !kept
                    .iter()
                    .any(|entry| entry.metadata.release == package.release)
                {
                    let from = format!("{} {}", package.name, package.version);
                    line(&package.release, "can be fetched", &from);
                }
            }
        }
        Err(error) if kept.is_empty() => return Err(error.into()),
        // Cached kernels are usable without apt.
        Err(error) => tracing::info!("{error}"),
    }
    Ok(text)
}

async fn fetch_kernels(
    cache: &Cache,
    kernels: &[String],
    boot: bool,
) -> Result<String, KernelError> {
    let mut text = String::new();
    for wanted in resolve_names(cache, kernels).await? {
        let entry = match guest::find_package(&wanted).await {
            Ok(package) => guest::fetch(cache, &package, false).await?,
            // A cached kernel does not require apt.
            Err(error) => guest::find_undamaged(cache, &wanted).ok_or(error)?,
        };
        if boot {
            guest::check_qemu()?;
            let exact = KernelRequest::Series(entry.metadata.release.clone());
            let booted = Guest::new(cache.clone(), &exact).await?;
            drop(Kernel::Guest(Box::new(booted)).start().await?);
        }
        let _ = writeln!(text, "{}", entry.metadata.release);
    }
    Ok(text)
}

/// Resolves the names on the command line: no name is the newest kernel, `all` is every series.
async fn resolve_names(
    cache: &Cache,
    kernels: &[String],
) -> Result<Vec<KernelRequest>, GuestError> {
    if kernels.is_empty() {
        return Ok(vec![KernelRequest::Newest]);
    }
    let mut wanted = Vec::new();
    for name in kernels {
        if name == "all" {
            wanted.extend(guest::every_series(cache).await?);
        } else {
            wanted.push(KernelRequest::Series(name.clone()));
        }
    }
    Ok(wanted)
}

async fn remove_kernels(
    cache: &Cache,
    kernels: &[String],
    remove_all: bool,
) -> Result<String, KernelError> {
    let mut text = String::new();
    let kept = guest::cached_kernels(cache);
    for name in kernels {
        if !kept.iter().any(|entry| has_name(entry, name)) {
            return Err(no_kernel(name).into());
        }
    }
    for entry in kept
        .iter()
        .filter(|entry| remove_all || kernels.iter().any(|name| has_name(entry, name)))
    {
        guest::remove(cache, entry).await?;
        let _ = writeln!(text, "{}", entry.metadata.release);
    }
    Ok(text)
}

/// Returns the cache key for the content of guests, in one line.
async fn cache_key(kernel: Option<&str>) -> Result<String, KernelError> {
    let wanted = match kernel {
        Some(series) => KernelRequest::Series(series.to_owned()),
        None => KernelRequest::Newest,
    };
    Ok(format!("{}\n", guest::cache_key(&wanted).await?))
}

/// Returns the path of a cached kernel; without a name, of the cache.
fn kernel_path(cache: &Cache, kernel: Option<&str>) -> Result<String, KernelError> {
    let Some(name) = kernel else {
        return Ok(format!("{}\n", cache.directory().display()));
    };
    let kept = guest::cached_kernels(cache);
    let entry = kept
        .iter()
        .find(|entry| has_name(entry, name))
        .ok_or_else(|| no_kernel(name))?;
    Ok(format!("{}\n", entry.directory.join("vmlinuz").display()))
}

fn has_name(entry: &CacheEntry<Image>, name: &str) -> bool {
    entry.metadata.release == name || series(&entry.metadata.release) == name
}

fn no_kernel(name: &str) -> GuestError {
    GuestError::NoKernel {
        wanted: name.to_owned(),
        reason: "not in the cache".to_owned(),
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}
