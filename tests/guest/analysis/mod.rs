//! Tests the commands that explain and compare results, with guests.

mod balancer;
mod bisect;
mod explain;
mod replay;
mod why;
