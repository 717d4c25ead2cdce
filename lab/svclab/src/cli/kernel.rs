//! Implements `svclab kernel`.

use std::fmt::Write as _;

use super::args::KernelCommand;
use super::exit::Exit;
use super::interrupt::unless_interrupted;
use super::output::print;
use svclab_diagnostic::exit_code;
use svclab_runner::kernel::guest::{self, Cache, Entry, Guest, GuestError, Image, Wanted, series};
use svclab_runner::kernel::{Kernel, KernelError};

/// Lists, fetches and removes kernels of guests, or prints their cache key or path.
pub fn kernel(command: &KernelCommand) -> Exit {
    let done = unless_interrupted(async {
        let cache = Cache::of_environment()?;
        match command {
            KernelCommand::List => list(&cache).await,
            KernelCommand::Fetch { kernels, boot } => fetch(&cache, kernels, *boot).await,
            KernelCommand::Rm { kernels, all } => remove(&cache, kernels, *all).await,
            KernelCommand::Key { kernel } => key(kernel.as_deref()).await,
            KernelCommand::Path { kernel } => path(&cache, kernel.as_deref()),
        }
    });
    match done {
        Ok(Some(Ok(text))) => print(&text),
        Ok(Some(Err(error))) => {
            let (code, remedy) = match &error {
                KernelError::Guest(error) if error.is_loss() => (exit_code::LOST, error.remedy()),
                KernelError::Guest(error) => (exit_code::MACHINE, error.remedy()),
                KernelError::Lost(_) => (exit_code::LOST, None),
                _ => (exit_code::MACHINE, None),
            };
            eprintln!("error: {error}");
            if let Some(remedy) = remedy {
                eprintln!("what to do: {remedy}");
            }
            Exit::Of(code)
        }
        Ok(None) => {
            eprintln!("interrupted");
            Exit::Interrupted
        }
        Err(error) => {
            eprintln!("error: {error}");
            Exit::Machine
        }
    }
}

/// Lists all cached kernels, and the kernels from apt that are not cached.
async fn list(cache: &Cache) -> Result<String, KernelError> {
    let kept = guest::kept(cache);
    let mut text = String::new();
    let mut line = |release: &str, state: &str, from: &str| {
        let _ = writeln!(text, "{release:<32} {state:<32} {from}");
    };
    for entry in &kept {
        let (snapshots, room) = guest::snapshots(cache, entry);
        let state = match snapshots {
            0 => format!("kept, {}", megabytes(entry.bytes)),
            1 => format!("kept, {}, 1 snapshot", megabytes(entry.bytes + room)),
            many => format!("kept, {}, {many} snapshots", megabytes(entry.bytes + room)),
        };
        line(&entry.about.release, &state, &entry.about.from);
    }
    match guest::available("of any version").await {
        Ok(packages) => {
            for package in packages {
                if !kept
                    .iter()
                    .any(|entry| entry.about.release == package.release)
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

async fn fetch(cache: &Cache, kernels: &[String], boot: bool) -> Result<String, KernelError> {
    let mut text = String::new();
    for wanted in wanted(cache, kernels).await? {
        let entry = match guest::find(&wanted).await {
            Ok(package) => guest::fetch(cache, &package, false).await?,
            // A cached kernel does not require apt.
            Err(error) => guest::whole(cache, &wanted).ok_or(error)?,
        };
        if boot {
            guest::look_for_qemu()?;
            let exact = Wanted::Series(entry.about.release.clone());
            let booted = Guest::new(cache.clone(), &exact).await?;
            drop(Kernel::Guest(Box::new(booted)).start().await?);
        }
        let _ = writeln!(text, "{}", entry.about.release);
    }
    Ok(text)
}

/// Resolves the names on the command line: no name is the newest kernel, `all` is every series.
async fn wanted(cache: &Cache, kernels: &[String]) -> Result<Vec<Wanted>, GuestError> {
    if kernels.is_empty() {
        return Ok(vec![Wanted::Newest]);
    }
    let mut all = Vec::new();
    for name in kernels {
        if name == "all" {
            all.extend(guest::every_series(cache).await?);
        } else {
            all.push(Wanted::Series(name.clone()));
        }
    }
    Ok(all)
}

async fn remove(cache: &Cache, kernels: &[String], all: bool) -> Result<String, KernelError> {
    let mut text = String::new();
    let kept = guest::kept(cache);
    for name in kernels {
        if !kept.iter().any(|entry| is_called(entry, name)) {
            return Err(none(name).into());
        }
    }
    for entry in kept
        .iter()
        .filter(|entry| all || kernels.iter().any(|name| is_called(entry, name)))
    {
        guest::remove(cache, entry).await?;
        let _ = writeln!(text, "{}", entry.about.release);
    }
    Ok(text)
}

/// Returns the cache key for the content of guests, in one line.
async fn key(kernel: Option<&str>) -> Result<String, KernelError> {
    let wanted = match kernel {
        Some(series) => Wanted::Series(series.to_owned()),
        None => Wanted::Newest,
    };
    Ok(format!("{}\n", guest::key(&wanted).await?))
}

/// Returns the path of a cached kernel; without a name, of the cache.
fn path(cache: &Cache, kernel: Option<&str>) -> Result<String, KernelError> {
    let Some(name) = kernel else {
        return Ok(format!("{}\n", cache.directory().display()));
    };
    let kept = guest::kept(cache);
    let entry = kept
        .iter()
        .find(|entry| is_called(entry, name))
        .ok_or_else(|| none(name))?;
    Ok(format!("{}\n", entry.directory.join("vmlinuz").display()))
}

fn is_called(entry: &Entry<Image>, name: &str) -> bool {
    entry.about.release == name || series(&entry.about.release) == name
}

fn none(name: &str) -> GuestError {
    GuestError::NoKernel {
        wanted: name.to_owned(),
        why: "none is kept".to_owned(),
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}
