//! Reads what the arguments of several commands name: dumps, nodes and running labs.

pub(super) mod dumps;
pub(super) mod nodes;
pub(super) mod running_lab;
pub(super) mod verdict;
