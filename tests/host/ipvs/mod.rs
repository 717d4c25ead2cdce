//! Tests IPVS in a guest's kernel: `ipvsadm` reads back what svclab writes, and the results of
//! connections depend on it. These guest tests run with all other tests; the others are in
//! `tests/guest`.

mod balancer;
mod dump;
mod oracle;
mod programs;
mod traced;
