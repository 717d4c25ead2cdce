//! Tests IPVS in a guest's kernel: `ipvsadm` reads back what svclab writes, and the results of
//! connections depend on it. These guest tests run with all other tests; the others are in
//! `tests/guest`.

#[path = "../shared/cases.rs"]
mod cases;
#[path = "../shared/guests.rs"]
mod guests;

mod balancer;
mod dump;
mod oracle;
mod programs;
mod traced;
