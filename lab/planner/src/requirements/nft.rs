//! Lists the requirements of native nftables tables: the modules of their chains and expressions.
//!
//! The kernel requests an expression first with the family (`nft-expr-2-fib`), then without
//! (`nft-expr-ct`). A module has an alias for one of the two (Linux v6.12, `__nft_expr_type_get` in
//! `net/netfilter/nf_tables_api.c`, and `MODULE_ALIAS_NFT_EXPR` and `MODULE_ALIAS_NFT_AF_EXPR` in
//! the modules).

use super::Requirements;
use svclab_model::plan::Namespace;

/// Keywords of rules and the expressions that they require. The first list has expressions with a
/// family, the second list expressions of all families.
const FAMILY_EXPRESSIONS: [(&str, &str); 2] = [("fib", "fib"), ("reject", "reject")];
const COMMON_EXPRESSIONS: [(&str, &str); 5] = [
    ("ct", "ct"),
    ("masquerade", "masq"),
    ("dnat", "nat"),
    ("snat", "nat"),
    ("numgen", "numgen"),
];

/// Adds the requirements of a namespace's tables.
pub(super) fn add_requirements(needs: &mut Requirements, namespace: &Namespace) {
    if namespace.nft.is_empty() {
        return;
    }
    let name = &namespace.name;
    let object = || "the nftables tables".to_owned();
    needs.add_program("nft", name, object);
    needs.add_module("nfnetlink", name, object);
    needs.add_module("nf_tables", name, object);
    let mut family = 2;
    let mut is_in_set = false;
    for line in namespace.nft.lines() {
        let words = || line.split_ascii_whitespace();
        let starts_with = |word: &str| words().next() == Some(word);
        let mut add = |module: &str| {
            needs.add_module(module, name, || super::quote_line("rule", line.trim()));
        };
        if starts_with("table") {
            family = if words().nth(1) == Some("ip6") { 10 } else { 2 };
        } else if starts_with("set") || starts_with("map") || starts_with("chain") {
            is_in_set = !starts_with("chain");
        } else if is_in_set || starts_with("comment") {
        } else if line.trim_start().starts_with("type nat ") {
            add(&format!("nft-chain-{family}-nat"));
        } else {
            let rule = line.split(" comment \"").next().unwrap_or_default();
            for word in rule.split_ascii_whitespace() {
                for (_, expression) in FAMILY_EXPRESSIONS
                    .iter()
                    .filter(|(known, _)| *known == word)
                {
                    add(&format!("nft-expr-{family}-{expression}"));
                }
                for (_, expression) in COMMON_EXPRESSIONS
                    .iter()
                    .filter(|(known, _)| *known == word)
                {
                    add(&format!("nft-expr-{expression}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nft_requirements_expressions_become_modules() {
        let namespace = Namespace {
            name: "node-1".to_owned(),
            nft: "table ip6 t {\n\tset ct {\n\t\ttype ipv6_addr\n\t}\n\n\tchain a {\n\
                \t\ttype nat hook output priority -100; policy accept;\n\
                \t\tct state new reject comment \"no masquerade\"\n\
                \t\tdnat to numgen random mod 1 map { 0 : ::1 }\n\t}\n}\n"
                .to_owned(),
            ..Namespace::default()
        };
        let mut needs = Requirements::default();
        add_requirements(&mut needs, &namespace);
        let modules: Vec<&str> = needs.modules().map(|(name, _)| name).collect();
        assert_eq!(
            modules,
            [
                "nfnetlink",
                "nf_tables",
                "nft-chain-10-nat",
                "nft-expr-ct",
                "nft-expr-10-reject",
                "nft-expr-nat",
                "nft-expr-numgen"
            ]
        );
        let programs: Vec<&str> = needs.programs().map(|(name, _)| name).collect();
        assert_eq!(programs, ["nft"]);
    }
}
