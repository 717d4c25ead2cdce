//! Tests the commands that explain and compare results.

mod bisect;
mod explain;
mod verify;
mod why;
