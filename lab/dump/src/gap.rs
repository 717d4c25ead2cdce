//! Defines the parts of a bundle that are not read.

/// File or directory of a bundle that is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Name of the file, or of the directory with the number of its files.
    pub name: String,
    /// Reason.
    pub reason: String,
    /// Possible effect on results. Empty if no effect is known.
    pub affects: String,
}

impl Gap {
    /// Returns the name with the reason and the effect.
    #[must_use]
    pub fn describe(&self) -> String {
        let Self {
            name,
            reason,
            affects,
        } = self;
        if affects.is_empty() {
            format!("{name}: {reason}")
        } else {
            format!("{name}: {reason}; {affects}")
        }
    }
}
