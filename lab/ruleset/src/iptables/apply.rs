//! Computes the rules that a script creates in an empty namespace, without a kernel.

use thiserror::Error;

use super::chains::{Chains, ChainsError};
use super::rule::Rule;
use super::{Chain, IptablesRules, TableRules};
use crate::iptables::script::IptablesScript;
use crate::text::problem::ProblemKind;

/// Error for a script that cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ApplyError {
    /// A command fails.
    #[error(transparent)]
    Command(#[from] ChainsError),
    /// A rule cannot be parsed.
    #[error("`{rule}`: {problem}")]
    InvalidRule {
        /// Rule as `-A` command.
        rule: String,
        /// Error in the rule.
        problem: ProblemKind,
    },
}

impl IptablesRules {
    /// Computes the rules that `script` creates in an empty namespace.
    ///
    /// # Errors
    ///
    /// Returns the first command that cannot be applied, or the first rule that cannot be parsed.
    pub fn from_script(script: &IptablesScript) -> Result<Self, ApplyError> {
        Self::from_chains(&Chains::from_script(script)?)
    }

    /// Returns the rules of a model, with all built-in chains of its tables.
    ///
    /// # Errors
    ///
    /// Returns the first rule that cannot be parsed.
    pub fn from_chains(model: &Chains) -> Result<Self, ApplyError> {
        let mut dump = Self::default();
        for (table, of) in &model.tables {
            let built_in = table.built_in_chains().iter().copied();
            let declared = of.chains.keys().map(String::as_str);
            let names = built_in.chain(declared.filter(|name| !table.is_built_in(name)));
            let chains = names.map(|name| {
                let texts = of.chains.get(name).into_iter().flatten();
                let rules = texts.map(|text| {
                    Rule::from_words(text.as_str()).map_err(|problem| ApplyError::InvalidRule {
                        rule: format!("-A {name} {text}"),
                        problem: problem.kind,
                    })
                });
                let policy = of.policies.get(name).map_or("ACCEPT", String::as_str);
                Ok(Chain {
                    name: name.to_owned(),
                    policy: table.is_built_in(name).then(|| policy.to_owned()),
                    rules: rules.collect::<Result<_, _>>()?,
                    line: 0,
                })
            });
            dump.tables.push(TableRules {
                table: *table,
                chains: chains.collect::<Result<_, ApplyError>>()?,
            });
        }
        Ok(dump)
    }
}

/// Returns the script that creates these rules in an empty namespace, without their counters.
impl From<&IptablesRules> for IptablesScript {
    fn from(rules: &IptablesRules) -> Self {
        let mut script = Self::new();
        for TableRules { table, chains } in &rules.tables {
            let block = script.table_mut(*table);
            for chain in chains {
                match &chain.policy {
                    Some(policy) => block.policies.push((chain.name.clone(), policy.clone())),
                    None => block.declare_chain(&chain.name),
                }
            }
            for Chain { name, rules, .. } in chains {
                for rule in rules {
                    block.append(name, rule.source_text().trim_ascii());
                }
            }
        }
        script
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iptables::script::Table;

    fn resulting_rules(commands: &[&str]) -> Result<Vec<String>, ApplyError> {
        let mut script = IptablesScript::new();
        let table = script.table_mut(Table::Nat);
        table.declare_chain("MINE");
        for command in commands {
            table.push(command.parse().expect("supported command"));
        }
        let dump = IptablesRules::from_script(&script)?;
        let chain = dump.chain(Table::Nat, "MINE").unwrap();
        Ok(chain.rules.iter().map(Rule::canonical_text).collect())
    }

    #[test]
    fn from_script_applies_commands_in_order() {
        let result = resulting_rules(&[
            "-A MINE -j A",
            "-I MINE -j B",
            "-I MINE 2 -j C",
            "-A MINE -j D",
            "-D MINE -j A",
        ]);
        assert_eq!(result.unwrap(), ["-j B", "-j C", "-j D"]);
    }

    #[test]
    fn from_script_invalid_command_returns_error() {
        let messages = ["-D MINE -j A", "-A OTHER -j A", "-A MINE -j \"A"]
            .map(|command| resulting_rules(&[command]).unwrap_err().to_string());
        insta::assert_snapshot!(messages.join("\n"));
    }

    #[test]
    fn script_of_rules_creates_same_rules() {
        let text = "*nat\n:OUTPUT DROP [1:2]\n:MINE - [0:0]\n[3:4] -A OUTPUT -j MINE\nCOMMIT\n";
        let script = IptablesScript::from(&IptablesRules::parse(text).unwrap());
        assert_eq!(
            script.to_string(),
            "*nat\n:MINE - [0:0]\n:OUTPUT DROP [0:0]\n-A OUTPUT -j MINE\nCOMMIT\n"
        );
    }
}
