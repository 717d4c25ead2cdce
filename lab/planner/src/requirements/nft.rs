//! Lists the requirements of native nftables tables: the modules of their chains and expressions.
//!
//! The kernel requests an expression first with the family (`nft-expr-2-fib`), then without
//! (`nft-expr-ct`). A module has an alias for one of the two (Linux v6.12, `__nft_expr_type_get` in
//! `net/netfilter/nf_tables_api.c`, and `MODULE_ALIAS_NFT_EXPR` and `MODULE_ALIAS_NFT_AF_EXPR` in
//! the modules).

use super::{Requirements, quote_line};
use svclab_ruleset::input::Input;
use svclab_ruleset::nft::Ruleset;

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

/// Adds the requirements of tables. Text that cannot be parsed requires no modules; nft rejects it.
pub(super) fn add_requirements(needs: &mut Requirements, namespace: &str, input: &Input<Ruleset>) {
    if input.is_empty() {
        return;
    }
    let object = || "the nftables tables".to_owned();
    needs.add_program("nft", namespace, object);
    needs.add_module("nfnetlink", namespace, object);
    needs.add_module("nf_tables", namespace, object);
    for table in input
        .state()
        .into_iter()
        .flat_map(|ruleset| &ruleset.tables)
    {
        let family = if table.family == "ip6" { 10 } else { 2 };
        let mut add = |module: &str, line: &str| {
            needs.add_module(module, namespace, || quote_line("rule", line));
        };
        for chain in &table.chains {
            if let Some(hook) = chain.hook.as_ref().filter(|hook| hook.kind == "nat") {
                add(&format!("nft-chain-{family}-nat"), &hook.to_string());
            }
            for rule in &chain.rules {
                for word in rule.text.split_ascii_whitespace() {
                    let expression = |known: &[(&str, &'static str)]| {
                        let found = known.iter().find(|(keyword, _)| *keyword == word);
                        found.map(|(_, expression)| *expression)
                    };
                    if let Some(expression) = expression(&FAMILY_EXPRESSIONS) {
                        add(
                            &format!("nft-expr-{family}-{expression}"),
                            &rule.to_string(),
                        );
                    }
                    if let Some(expression) = expression(&COMMON_EXPRESSIONS) {
                        add(&format!("nft-expr-{expression}"), &rule.to_string());
                    }
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
        let input = Input::from_text(
            "table ip6 t {\n\tset ct {\n\t\ttype ipv6_addr\n\t}\n\n\tchain a {\n\
             \t\ttype nat hook output priority -100; policy accept;\n\
             \t\tct state new reject comment \"no masquerade\"\n\
             \t\tdnat to numgen random mod 1 map { 0 : ::1 }\n\t}\n}\n",
        );
        let mut needs = Requirements::default();
        add_requirements(&mut needs, "node-1", &input);
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
