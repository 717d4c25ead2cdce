//! Tests the start of guests: caches, and all known failures.

mod broken;
mod kept;
mod lacking;
mod room;
