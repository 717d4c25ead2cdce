//! Tests files of the project: README.md, CI templates, and the checks of style and imports.

mod ci;
mod cycles;
mod readme;
mod style;
