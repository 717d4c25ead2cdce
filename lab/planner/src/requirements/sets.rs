//! Lists the requirements of address sets: the module of each set type.

use super::{Requirements, quote_line};
use svclab_ruleset::input::Input;
use svclab_ruleset::ipset::saved::Sets;

/// Adds the requirements of sets. Lines that cannot be parsed require nothing; ipset rejects them.
pub(super) fn add_requirements(needs: &mut Requirements, namespace: &str, input: &Input<Sets>) {
    if input.is_empty() {
        return;
    }
    needs.add_program("ipset", namespace, || "the address sets".to_owned());
    needs.add_module("ip_set", namespace, || "the address sets".to_owned());
    for (name, set) in input.state().into_iter().flatten() {
        // The kernel requests `ip_set_` and the type name of the tool (Linux v6.12,
        // `net/netfilter/ipset/ip_set_core.c`, `load_settype`).
        needs.add_module(&format!("ip_set_{}", set.kind), namespace, || {
            quote_line("set", &format!("create {name} {}", set.creation()))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_requirements_each_type_is_a_module() {
        let text = "create a hash:ip,port family inet\ncreate b list:set size 8\n\
                    add a 10.0.0.1,tcp:80\ncreate c hash:ip,port\n";
        let mut needs = Requirements::default();
        add_requirements(&mut needs, "node-1", &Input::from_text(text));
        let names: Vec<&str> = needs.modules().map(|(name, _)| name).collect();
        assert_eq!(names, ["ip_set", "ip_set_hash:ip,port", "ip_set_list:set"]);
        let programs: Vec<&str> = needs.programs().map(|(name, _)| name).collect();
        assert_eq!(programs, ["ipset"]);
    }
}
