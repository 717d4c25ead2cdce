//! Tests files of the project: README.md, CI templates, and the check of the style.

mod ci;
mod readme;
mod style;
