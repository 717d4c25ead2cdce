//! Tests the commands that explain and compare results.

mod bisect;
mod cures;
mod explain;
mod verify;
mod why;
