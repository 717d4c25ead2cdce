//! Records whether a reader has ended or failed. The errors of decoders do not show it.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

/// Reader that records its state.
pub(super) struct Watched<'r> {
    from: &'r mut dyn Read,
    state: Rc<Cell<State>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    #[default]
    Reading,
    Ended,
    Failed,
}

impl<'r> Watched<'r> {
    pub(super) fn new(from: &'r mut dyn Read, state: &Rc<Cell<State>>) -> Self {
        Self {
            from,
            state: Rc::clone(state),
        }
    }
}

impl Read for Watched<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(into);
        match read {
            Ok(0) if !into.is_empty() => self.state.set(State::Ended),
            Ok(_) => {}
            Err(_) => self.state.set(State::Failed),
        }
        read
    }
}
