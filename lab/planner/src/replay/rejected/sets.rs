//! Removes rejected ipsets and their entries.

use super::RejectedRemover;
use super::tables::program_inputs_mut;
use crate::replay::report::count_noun;
use svclab_ruleset::ipset::saved::Sets;
use svclab_ruleset::tool::Format;

impl RejectedRemover<'_> {
    /// Removes the item of a line for `ipset restore`.
    pub(super) fn remove_set_line(&mut self, line: &str) {
        let mut words = line.split(' ');
        let (verb, name) = (words.next(), words.next().unwrap_or_default());
        if verb == Some("create") {
            return self.remove_set(name);
        }
        let Some(set) = self.dump.sets.as_ref().and_then(|sets| sets.get(name)) else {
            return;
        };
        let entry = words.next().unwrap_or_default();
        self.edit_sets(|sets| {
            if let Some(set) = sets.get_mut(name) {
                set.entries.shift_remove(entry);
            }
        });
        let line = set.entries.get(entry).map_or(0, |entry| entry.line);
        let location = self.location_of(Format::Sets, line);
        self.add_removed(location, format!("entry {entry} of set {name}"), "entry");
    }

    /// Removes a set with its entries, and the entries and rules that refer to it.
    pub(super) fn remove_set(&mut self, name: &str) {
        let Some(set) = self.dump.sets.as_ref().and_then(|sets| sets.get(name)) else {
            return;
        };
        self.edit_sets(|sets| {
            sets.shift_remove(name);
            // Entries of a list are names of other sets.
            for set in sets.values_mut() {
                set.entries.shift_remove(name);
            }
        });
        let location = self.location_of(Format::Sets, set.line);
        let entries = count_noun(set.entries.len(), "entry", "entries");
        let description = format!("set {name}, {}, with {entries}", set.kind);
        self.add_removed(location, description, "set");
        let programs: Vec<String> = program_inputs_mut(self.namespace)
            .map(|(program, _)| program)
            .collect();
        self.reason = format!("it refers to set {name}, which is omitted");
        for program in programs {
            self.remove_rules_where(&program, |rule, _| {
                rule.sets().iter().any(|(set, _)| set == name)
            });
        }
    }

    fn edit_sets(&mut self, edit: impl FnOnce(&mut Sets)) {
        let edited = self.namespace.ipset.edit(edit);
        debug_assert!(edited.is_ok(), "the sets come from the dump");
    }
}
