//! Tests the commands that explain and compare results.

mod bisect;
mod cures;
mod explain;
mod nft_changes;
mod unseen_next_hop;
mod verify;
mod why;
