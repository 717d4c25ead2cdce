//! Tests with namespaces of this host, and with the programs that read and write their state.
//! `ipvs` runs in a guest, because not every host has IPVS.

mod agent_pipe;
mod bisect;
mod changed_networks;
mod changed_tables;
mod components_load;
mod doctor;
mod dump;
mod ipvs;
mod large_rules;
mod oracle;
mod plan_print;
mod rule_forms;
mod trace;
