//! IPVS as a guest's kernel has it: what svclab writes is read back by
//! `ipvsadm`, and what becomes of connections hangs on it. It is the part of the
//! tests of guests that is run with all others; the rest is `tests/guest`.

#[path = "../shared/cases.rs"]
mod cases;
#[path = "../shared/guests.rs"]
mod guests;

mod balancer;
mod dump;
mod oracle;
mod programs;
mod traced;
