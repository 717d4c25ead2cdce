//! Writes a run as files: evidence, capture and explanation for each case, and one `JUnit` XML
//! file.
//!
//! Each file gets its name only when it is complete.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::comments::comments;
use super::journey::seen_text;
use super::junit::Junit;
use super::pcapng::Pcapng;
use super::writer::{Options, Writer};
use svclab_diagnostic::files;
use svclab_diagnostic::printable::{Kind, Printable, printable};
use svclab_model::evidence::Evidence;
use svclab_runner::results::journeys::Told;
use svclab_runner::results::seen::Seen;
use svclab_runner::results::{CaseResult, Event};

/// Maximum length of a case directory's name in bytes; file systems allow 255.
const LONGEST: usize = 120;

/// Writer of a run's files.
#[derive(Debug)]
pub struct Folder {
    at: PathBuf,
    again: String,
    /// Command line name of the first case of each directory.
    firsts: HashMap<PathBuf, String>,
    /// Directories of this run.
    written: HashSet<PathBuf>,
}

impl Folder {
    /// Creates the directory. `again` is the command that repeats a case, without the case name.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be created.
    pub fn make(at: &Path, again: &str) -> io::Result<Self> {
        files::make_directory(at).map_err(|error| naming(at, &error))?;
        Ok(Self {
            at: at.to_owned(),
            again: again.to_owned(),
            firsts: HashMap::new(),
            written: HashSet::new(),
        })
    }

    /// Returns the directory of a case, which is unique in the run.
    fn place(&mut self, result: &CaseResult) -> PathBuf {
        let lab = self.at.join(name(&result.lab));
        let place = lab.join(name(result.short_name()));
        let first = self.firsts.entry(place.clone());
        let first = first.or_insert_with(|| result.named.clone());
        let (case, place) = if *first == result.named {
            (result.short_name(), place)
        } else {
            // Another file contains a lab of the same name.
            (result.named.as_str(), lab.join(name(&result.named)))
        };
        if self.written.insert(place.clone()) {
            return place;
        }
        // Another kernel ran the same case.
        let place = lab.join(name(&format!("{case}@{}", result.kernel)));
        self.written.insert(place.clone());
        place
    }

    fn case(&mut self, result: &CaseResult, seen: &Seen) -> io::Result<()> {
        let at = self.place(result);
        for directory in at.parent().into_iter().chain([at.as_path()]) {
            files::make_directory(directory).map_err(|error| naming(directory, &error))?;
        }
        file(&at.join("capture.pcapng"), |out| {
            let document = &seen.document;
            let evidence = &document.evidence;
            let mut pcapng = Pcapng::begin(out, seen.interfaces.iter().cloned())?;
            let mut left_out = 0;
            let mut write = |evidence: &Evidence, connections: &[Told]| {
                let said = comments(connections);
                for (number, packet) in evidence.packets.iter().enumerate() {
                    pcapng.packet(packet, said.get(&number).map(String::as_str))?;
                }
                left_out += evidence.packets_left_out;
                Ok::<_, io::Error>(())
            };
            write(evidence, &document.connections)?;
            for (at, step) in evidence.steps.iter().enumerate() {
                let meanwhile = Evidence {
                    packets: step.packets.clone(),
                    ..Evidence::default()
                };
                write(&meanwhile, &[])?;
                let told = document.steps.get(at);
                let told = told.map_or(&[][..], |told| &told.connections);
                write(&step.evidence, told)?;
            }
            if left_out > 0 {
                pcapng.missed(left_out)?;
            }
            pcapng.flush()
        })?;
        file(&at.join("evidence.json"), |out| {
            let mut out = Printable::new(out, Kind::Json);
            serde_json::to_writer(&mut out, &seen.document)?;
            out.write_all(b"\n")?;
            out.flush()
        })?;
        file(&at.join("explain.txt"), |out| {
            out.write_all(printable(&seen_text(result, seen)).as_bytes())
        })
    }
}

impl Writer for Folder {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::Finished {
                result,
                seen: Some(seen),
            } => self.case(result, seen),
            Event::Over { .. } => {
                let options = Options {
                    again: self.again.clone(),
                    ..Options::default()
                };
                file(&self.at.join("junit.xml"), |out| {
                    Junit::new(Printable::new(out, Kind::Text), options).event(event)
                })
            }
            _ => Ok(()),
        }
    }
}

/// Writes a file atomically.
fn file(at: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    files::write(at, write).map_err(|error| naming(at, &error))
}

fn naming(at: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", at.display()))
}

/// Converts a text to a file name. Special characters are replaced.
fn name(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|each| match each {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '=' | ',' | '+' | '-' | '@' => each,
            _ => '_',
        })
        .collect();
    if plain == text && text.len() <= LONGEST && !text.starts_with('.') && !text.is_empty() {
        return plain;
    }
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(text)[..4]);
    let plain = plain.trim_start_matches('.');
    format!("{}-{digest}", &plain[..plain.len().min(LONGEST)])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use svclab_runner::results::RunError;

    #[test]
    fn names_stay_in_their_directory() {
        assert_eq!(name("policy=Local,rpFilter=0"), "policy=Local,rpFilter=0");
        for odd in ["../../etc", "..", "", "a/b", "a\0b", &"x".repeat(1000)] {
            let name = name(odd);
            assert!(
                !name.contains('/') && !name.starts_with('.') && name.len() <= 130,
                "{name}"
            );
            assert!(!name.is_empty());
        }
        assert_ne!(name("a/b"), name("a:b"));
    }

    #[test]
    fn labs_of_one_name_have_directories_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let mut folder = Folder::make(folder.path(), "svclab run").unwrap();
        let mut places = HashSet::new();
        for named in ["da/same.yaml/a=x", "db/same.yaml/a=x", "dc/same.yaml/a=x"] {
            for kernel in ["6.1", "6.12"] {
                let error = RunError::no_kernel();
                let mut result = CaseResult::without_verdict("same", "same/a=x", error);
                result.named = named.to_owned();
                result.kernel = kernel.to_owned();
                let place = folder.place(&result);
                assert!(places.insert(place), "{places:?}");
            }
        }
    }

    #[test]
    fn a_file_that_was_not_finished_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("half");
        let error = file(&at, |out| {
            out.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        })
        .unwrap_err();
        assert!(
            error.to_string().contains("half: no storage space"),
            "{error}"
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
