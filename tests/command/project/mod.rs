//! Tests files of the project: README.md and the book, CI templates, and the checks of style and imports.

mod ci;
mod cycles;
mod docs;
mod kubernetes;
mod scripts;
mod shards;
mod style;
