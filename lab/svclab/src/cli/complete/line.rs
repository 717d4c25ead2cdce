//! The command line that a shell completes.

use std::path::PathBuf;

use crate::cli::args::LabSource;
use svclab_runner::run::select::LAB_DIRECTORY_VARIABLE;
use svclab_runner::run::select_labs_each;

/// Words of a command line. A completion script passes them after `--`.
pub(super) struct Line(Vec<String>);

impl Line {
    pub(super) fn from_process() -> Self {
        let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
        Self(
            words
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
        )
    }

    pub(super) fn has(&self, option: &str) -> bool {
        self.0.iter().any(|word| word == option)
    }

    /// Returns the value of an option, as `--option value` or `--option=value`.
    pub(super) fn value(&self, option: &str) -> Option<&str> {
        let mut words = self.0.iter();
        let mut value = None;
        while let Some(word) = words.next() {
            match word.strip_prefix(option) {
                Some("") => value = words.next().map(String::as_str),
                Some(rest) => value = rest.strip_prefix('=').or(value),
                None => {}
            }
        }
        value
    }

    /// Returns the place of labs that are given by name.
    pub(super) fn lab_source(&self) -> LabSource {
        let topologies = match self.value("--topologies") {
            Some(directory) => Some(PathBuf::from(directory)),
            None => std::env::var_os(LAB_DIRECTORY_VARIABLE).map(PathBuf::from),
        };
        LabSource { topologies }
    }

    /// Returns the words that select labs or cases, also as values of options.
    pub(super) fn cases(&self, source: &LabSource) -> Vec<String> {
        let words = self.0.iter().skip(2);
        let words = words.map(|word| match word.split_once('=') {
            Some((option, value)) if option.starts_with("--") => value,
            _ => word,
        });
        let is_case = |word: &&str| {
            let name = (*word).to_owned();
            !word.is_empty() && *word != "-" && select_labs_each(&[name], source.labs()).is_ok()
        };
        words.filter(is_case).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &str) -> Line {
        Line(words.split(' ').map(str::to_owned).collect())
    }

    #[test]
    fn value_of_option_has_two_forms() {
        let value = |words| line(words).value("--lab").map(str::to_owned);
        assert_eq!(value("svclab exec --lab a node-1").as_deref(), Some("a"));
        assert_eq!(value("svclab exec --lab=a/b=c").as_deref(), Some("a/b=c"));
        assert_eq!(value("svclab exec --lab a --lab=b").as_deref(), Some("b"));
        assert_eq!(value("svclab exec --labs a"), None);
        assert_eq!(value("svclab exec --lab"), None);
    }

    #[test]
    fn cases_are_positional_or_values() {
        let source = LabSource { topologies: None };
        let cases = |words| line(words).cases(&source);
        assert_eq!(
            cases("svclab bisect --good=clb-hairpin --bad local-ingress --probe no-lab - "),
            ["clb-hairpin", "local-ingress"]
        );
        assert_eq!(cases("svclab"), Vec::<String>::new());
    }
}
