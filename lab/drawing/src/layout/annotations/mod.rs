//! Places what is drawn over areas and lines: names of interfaces, marks and labels, each where
//! nothing else is.

pub mod labels;
pub mod marks;
pub mod ports;
pub mod room;
pub mod texts;
