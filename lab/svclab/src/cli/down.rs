//! Implements `svclab down`.

use super::args::DownArguments;
use super::exit::Exit;
use super::interrupt::unless_interrupted;
use super::output::{print, refused};
use super::which::{misplaced, uncalled, unpicked};
use crate::live::{About, Ask, CallError, Directory, PickError, Told, call, pick, standing};

/// Stops running labs, and returns after all their resources are removed.
pub fn down(arguments: &DownArguments) -> Exit {
    match unless_interrupted(take_away(arguments)) {
        Ok(Some(exit)) => exit,
        Ok(None) => {
            eprintln!("interrupted");
            Exit::Interrupted
        }
        Err(error) => refused(&error),
    }
}

async fn take_away(arguments: &DownArguments) -> Exit {
    let directory = match Directory::of_environment() {
        Ok(directory) => directory,
        Err(error) => return misplaced(&error),
    };
    let labs = match standing(&directory).await {
        Ok(labs) => labs,
        Err(error) => return uncalled(&error),
    };
    let chosen: Vec<About> = if arguments.all {
        labs
    } else {
        match pick(&labs, arguments.lab.as_deref(), "`svclab down LAB/CASE`") {
            Ok(at) => vec![labs[at].clone()],
            Err(error) => return unpicked(&error),
        }
    };
    if chosen.is_empty() {
        return unpicked(&PickError::None);
    }
    for lab in &chosen {
        match one(&directory, &lab.case).await {
            Ok(()) => drop(print(&format!("{} is gone\n", lab.case))),
            Err(error) => return uncalled(&error),
        }
    }
    Exit::Success
}

/// Stops a lab and waits for the end of its daemon. Returns `Ok` if the daemon has already ended.
async fn one(directory: &Directory, case: &str) -> Result<(), CallError> {
    let mut line = match call(directory, case, &Ask::Down).await {
        Err(CallError::Ended) => return Ok(()),
        line => line?,
    };
    loop {
        match line.hear().await {
            Ok(Told::Gone) => {}
            Err(CallError::Ended) => return Ok(()),
            Ok(_) => return Err(CallError::Nonsense),
            Err(error) => return Err(error),
        }
    }
}
