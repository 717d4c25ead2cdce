//! Lists the requirements of address sets: the module of each set type.

use super::{Requirements, quote_line};
use svclab_model::plan::Namespace;

/// Adds the requirements of a namespace's sets.
pub fn add_requirements(needs: &mut Requirements, namespace: &Namespace) {
    if namespace.ipset.is_empty() {
        return;
    }
    needs.add_program("ipset", &namespace.name, || "the address sets".to_owned());
    needs.add_module("ip_set", &namespace.name, || "the address sets".to_owned());
    for line in namespace.ipset.lines() {
        let mut words = line.split_whitespace();
        if !matches!(
            words.next(),
            Some("create" | "-N" | "--create" | "n" | "new" | "c")
        ) {
            continue;
        }
        if let Some(kind) = words.nth(1) {
            // The kernel requests `ip_set_` and the type name of the tool (Linux v6.12,
            // `net/netfilter/ipset/ip_set_core.c`, `load_settype`).
            needs.add_module(&format!("ip_set_{kind}"), &namespace.name, || {
                quote_line("set", line)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_requirements_each_type_is_a_module() {
        let namespace = Namespace {
            ipset: "create a hash:ip,port family inet\n-N b list:set size 8\nadd a 10.0.0.1,tcp:80\ncreate c hash:ip,port\n".to_owned(),
            ..Namespace::default()
        };
        let mut needs = Requirements::default();
        add_requirements(&mut needs, &namespace);
        let names: Vec<&str> = needs.modules().map(|(name, _)| name).collect();
        assert_eq!(names, ["ip_set", "ip_set_hash:ip,port", "ip_set_list:set"]);
        let programs: Vec<&str> = needs.programs().map(|(name, _)| name).collect();
        assert_eq!(programs, ["ipset"]);
    }
}
