//! Holds the input of a program that loads state into the kernel, such as `iptables-restore`.
//!
//! The planner holds state and renders it when text is needed. The agent receives text and passes
//! it on; it parses the text only if it needs the state.

use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// State with a text form that a program loads.
pub trait ProgramInput: Sized {
    /// Parses the text form.
    ///
    /// # Errors
    ///
    /// Returns the first error in the text.
    fn parse(text: &str) -> Result<Self, InputError>;

    /// Renders the text form. Empty if the program has nothing to load.
    fn render(&self) -> String;
}

/// Error in the text of an [`Input`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InputError(pub String);

/// Input of a program: its text and the state `T`, each made from the other at most once. A clone
/// shares both.
pub struct Input<T>(Arc<Forms<T>>);

struct Forms<T> {
    text: OnceLock<String>,
    state: OnceLock<Result<T, InputError>>,
}

impl<T: ProgramInput> Input<T> {
    /// Creates the input from its state.
    #[must_use]
    pub fn new(state: T) -> Self {
        Self(Arc::new(Forms {
            text: OnceLock::new(),
            state: OnceLock::from(Ok(state)),
        }))
    }

    /// Creates the input from its text, which is not checked.
    #[must_use]
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(Arc::new(Forms {
            text: OnceLock::from(text.into()),
            state: OnceLock::new(),
        }))
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.text.get_or_init(|| match self.0.state.get() {
            Some(Ok(state)) => state.render(),
            // Without a state, the text was given.
            _ => String::new(),
        })
    }

    /// Returns the state.
    ///
    /// # Errors
    ///
    /// Returns an error if the input was created from a text that cannot be parsed.
    pub fn state(&self) -> Result<&T, InputError> {
        let parse = || T::parse(self.text());
        self.0
            .state
            .get_or_init(parse)
            .as_ref()
            .map_err(Clone::clone)
    }

    /// Whether there is nothing to load.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text().is_empty()
    }

    /// Changes the state, and returns the result of `edit`.
    ///
    /// # Errors
    ///
    /// Returns an error if the input was created from a text that cannot be parsed.
    pub fn edit<R>(&mut self, edit: impl FnOnce(&mut T) -> R) -> Result<R, InputError>
    where
        T: Clone,
    {
        let mut state = self.state()?.clone();
        let result = edit(&mut state);
        *self = Self::new(state);
        Ok(result)
    }
}

impl<T> Clone for Input<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: ProgramInput> Default for Input<T> {
    fn default() -> Self {
        Self::from_text("")
    }
}

impl<T: ProgramInput> From<T> for Input<T> {
    fn from(state: T) -> Self {
        Self::new(state)
    }
}

/// Inputs are equal if their texts are equal.
impl<T: ProgramInput> PartialEq for Input<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.text() == other.text()
    }
}

impl<T: ProgramInput> Eq for Input<T> {}

impl<T: ProgramInput> fmt::Debug for Input<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().fmt(f)
    }
}

/// Serializes the text.
impl<T: ProgramInput> Serialize for Input<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}

impl<'de, T: ProgramInput> Deserialize<'de> for Input<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from_text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Number(u8);

    impl ProgramInput for Number {
        fn parse(text: &str) -> Result<Self, InputError> {
            let parsed = text.parse().map(Self);
            parsed.map_err(|error: std::num::ParseIntError| InputError(error.to_string()))
        }

        fn render(&self) -> String {
            self.0.to_string()
        }
    }

    #[test]
    fn input_has_both_forms() {
        let mut input = Input::new(Number(7));
        assert_eq!(input.text(), "7");
        assert_eq!(input, Input::from_text("7"));
        assert_eq!(Input::<Number>::from_text("7").state(), Ok(&Number(7)));
        let before = input.clone();
        assert_eq!(
            input.edit(|number| std::mem::replace(number, Number(8))),
            Ok(Number(7))
        );
        assert_eq!((before.text(), input.text()), ("7", "8"));
    }

    #[test]
    fn input_invalid_text_is_kept() {
        let mut input: Input<Number> = serde_json::from_str("\"x\"").unwrap();
        assert!(input.state().is_err());
        assert!(input.edit(|number| number.0 = 1).is_err());
        assert_eq!(serde_json::to_string(&input).unwrap(), "\"x\"");
    }
}
