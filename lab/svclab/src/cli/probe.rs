//! Implements `svclab probe`.

use std::fmt::Write as _;

use super::args::{Explanation, ProbeArguments};
use super::exit::Exit;
use super::explain::{form, print_explained};
use super::interrupt::unless_interrupted;
use super::output::{print, refused};
use super::which::{uncalled, which};
use crate::live::{Ask, CallError, Probed, Told, Wish, call};
use svclab_judge::observed_words;
use svclab_model::evidence::Verdict;

/// Runs one probe in a running lab. The exit code is 0 if every connection was answered, otherwise
/// 1.
pub fn probe(arguments: &ProbeArguments) -> Exit {
    match unless_interrupted(attempt(arguments)) {
        Ok(Some(Ok(probed))) => {
            let all = probed
                .attempts
                .iter()
                .all(|attempt| matches!(attempt.verdict, Verdict::Connected | Verdict::Answered));
            let printed = match (arguments.format, &probed.explained) {
                // The JSON document already contains the verdicts.
                (Explanation::Json, Some(_)) => Exit::Success,
                (Explanation::Human, Some(_)) => print(&(text(arguments, &probed) + "\n")),
                (_, None) => print(&text(arguments, &probed)),
            };
            let printed = match (printed, probed.explained) {
                (Exit::Success, Some(explained)) => print_explained(explained),
                (printed, _) => printed,
            };
            match printed {
                Exit::Success if !all => Exit::Failed,
                exit => exit,
            }
        }
        Ok(Some(Err(exit))) => exit,
        Ok(None) => {
            eprintln!("interrupted");
            Exit::Interrupted
        }
        Err(error) => refused(&error),
    }
}

async fn attempt(arguments: &ProbeArguments) -> Result<Probed, Exit> {
    let (directory, lab) = which(arguments.which.lab.as_deref(), "--lab").await?;
    let wish = Wish {
        from: arguments.from.clone(),
        to: arguments.to.clone(),
        protocol: arguments.protocol,
        connections: arguments.connections,
        patience: arguments.patience,
    };
    let explain = arguments
        .explain
        .then(|| form(arguments.format, arguments.verbose));
    let answer = async {
        let ask = Ask::Probe { wish, explain };
        let mut line = call(&directory, &lab.case, &ask).await?;
        match line.hear().await? {
            Told::Probed { probed } => Ok(*probed),
            _ => Err(CallError::Nonsense),
        }
    };
    answer.await.map_err(|error| uncalled(&error))
}

/// Renders the result in the format of a run.
fn text(arguments: &ProbeArguments, probed: &Probed) -> String {
    let seen = observed_words(&probed.observed);
    let mut text = format!("{} → {}", arguments.from, arguments.to);
    // A name can have several addresses, so the address is printed too.
    let address = match probed.target.port {
        0 => probed.target.address.to_string(),
        _ => probed.target.socket().to_string(),
    };
    if address != arguments.to {
        let _ = write!(text, " ({address})");
    }
    let _ = writeln!(text, "\n  {seen}");
    let mut errors: Vec<&str> = probed
        .attempts
        .iter()
        // For other verdicts, the error adds no information.
        .filter(|attempt| attempt.verdict == Verdict::Unreachable)
        .filter_map(|attempt| attempt.error.as_deref())
        .collect();
    errors.sort_unstable();
    errors.dedup();
    for error in errors {
        let _ = writeln!(text, "  the kernel said: {error}");
    }
    text
}
