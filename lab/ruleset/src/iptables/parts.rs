//! Defines the parts of a rule: options, matches and the target.

use std::borrow::Cow;

/// Rule split into its parts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleParts<'r> {
    /// Options that match the packet header: `-p`, `-s`, `-d`, `-i`, `-o`, `-f`.
    pub header: Vec<RuleOption<'r>>,
    /// Matches in order of evaluation.
    pub matches: Vec<MatchModule<'r>>,
    /// Target for packets that pass all matches. `None` for a rule that only counts.
    pub target: Option<Target<'r>>,
}

/// Option with its values, possibly negated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleOption<'r> {
    /// Name with leading dashes.
    pub name: Cow<'r, str>,
    /// Whether `!` precedes the option.
    pub is_negated: bool,
    /// Values that follow the option.
    pub values: Vec<Cow<'r, str>>,
}

/// Match (`-m NAME`) with its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchModule<'r> {
    /// Name of the match.
    pub name: Cow<'r, str>,
    /// Whether the protocol implies the match. Such a rule has options without `-m`.
    pub is_implied: bool,
    /// Options of the match.
    pub options: Vec<RuleOption<'r>>,
}

/// Target (`-j NAME` or `-g NAME`) with its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target<'r> {
    /// Name of a chain, a verdict or a target extension.
    pub name: Cow<'r, str>,
    /// Whether the packet does not return to this chain (`-g`).
    pub is_goto: bool,
    /// Options of the target.
    pub options: Vec<RuleOption<'r>>,
}

impl<'r> RuleParts<'r> {
    /// Returns the options of the target, of the last match, or of the match that the protocol
    /// implies.
    pub(super) fn open_options(&mut self) -> &mut Vec<RuleOption<'r>> {
        if let Some(target) = &mut self.target {
            return &mut target.options;
        }
        if self.matches.is_empty() {
            let protocol = self.header.iter().find(|choice| choice.name == "-p");
            let name = protocol.and_then(|choice| choice.values.first());
            self.matches.push(MatchModule {
                name: name.cloned().unwrap_or_default(),
                is_implied: true,
                options: Vec::new(),
            });
        }
        let last = self.matches.len() - 1;
        &mut self.matches[last].options
    }

    /// Returns the last parsed option. The value of a header option follows immediately. Other
    /// options belong to the last match or target.
    pub(super) fn last_option(&mut self) -> Option<&mut RuleOption<'r>> {
        let needs_value =
            |choice: &&mut RuleOption<'_>| choice.values.is_empty() && choice.name != "-f";
        if let Some(header) = self.header.last_mut().filter(needs_value) {
            return Some(header);
        }
        if let Some(target) = &mut self.target {
            return target.options.last_mut();
        }
        self.matches.last_mut()?.options.last_mut()
    }

    /// Returns the first match with a name. `None` without such a match.
    #[must_use]
    pub fn match_module(&self, name: &str) -> Option<&MatchModule<'r>> {
        self.matches.iter().find(|module| module.name == name)
    }

    /// Returns the value of a header option (`-d`). `None` if the option is absent or negated.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let choice = self.header.iter().find(|choice| choice.name == name)?;
        let value = choice.values.first()?;
        (!choice.is_negated).then_some(value.as_ref())
    }
}

impl MatchModule<'_> {
    /// Returns the first value of an option. `None` if the option is absent or negated.
    #[must_use]
    pub fn value(&self, option: &str) -> Option<&str> {
        let choice = self.options.iter().find(|choice| choice.name == option)?;
        let value = choice.values.first()?;
        (!choice.is_negated).then_some(value.as_ref())
    }
}
