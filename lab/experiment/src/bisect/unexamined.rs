//! Lists what no trial of a bisection includes.

use std::fmt;

/// Differences and state that no trial includes.
#[derive(Debug, Clone, Default)]
pub struct Unexamined {
    /// Differences of the sides that the plans do not contain.
    pub not_tried: Vec<String>,
    /// State that one of the dumps does not contain.
    pub not_collected: Vec<String>,
}

/// Renders the end of a message: each difference in a line of its own, and the state in one line.
impl fmt::Display for Unexamined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.not_tried.is_empty() {
            let lines = self.not_tried.join("\n  ");
            write!(
                f,
                "; not tried, because svclab does not build it:\n  {lines}"
            )?;
        }
        if !self.not_collected.is_empty() {
            write!(f, "\nnot looked at: {}", self.not_collected.join(", "))?;
        }
        Ok(())
    }
}
