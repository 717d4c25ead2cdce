//! Computes the rules that a script creates in an empty namespace, without a kernel.

use std::collections::HashMap;

use thiserror::Error;

use super::rule::Rule;
use super::words::Words;
use super::{Chain, IptablesRules, TableRules};
use crate::iptables::script::{IptablesScript, TableScript};
use crate::text::problem::ProblemKind;

/// Error for a script that cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{command}`: {problem}")]
pub struct ApplyError {
    /// Command that failed.
    pub command: String,
    /// Cause of the failure.
    pub problem: ApplyProblem,
}

/// Error in a command.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ApplyProblem {
    /// The rule cannot be parsed.
    #[error("{0}")]
    InvalidRule(ProblemKind),
    /// The chain is neither built in nor declared.
    #[error("chain `{0}` does not exist")]
    MissingChain(String),
    /// The rule to delete does not exist, or the position is out of range.
    #[error("the rule does not exist")]
    MissingRule,
    /// The command is not `-A`, `-I` or `-D`.
    #[error("only -A, -I and -D are supported")]
    UnsupportedCommand,
}

impl IptablesRules {
    /// Computes the rules that `script` creates in an empty namespace.
    ///
    /// # Errors
    ///
    /// Returns the first command that cannot be applied.
    pub fn from_script(script: &IptablesScript) -> Result<Self, ApplyError> {
        let mut dump = Self::default();
        for (table, block) in script.tables() {
            let built_in = table.built_in_chains().iter().map(|name| Chain {
                name: (*name).to_owned(),
                policy: {
                    let mut policies = block.policies.iter().rev();
                    let policy = policies.find(|(chain, _)| chain == name);
                    Some(policy.map_or("ACCEPT", |(_, policy)| policy).to_owned())
                },
                rules: Vec::new(),
                line: 0,
            });
            let declared = block.chains.iter().map(|name| Chain {
                name: name.clone(),
                policy: None,
                rules: Vec::new(),
                line: 0,
            });
            let chains = built_in.chain(declared).collect();
            let mut table = TableRules { table, chains };
            apply_commands(&mut table, block)?;
            dump.tables.push(table);
        }
        Ok(dump)
    }
}

fn apply_commands(table: &mut TableRules, block: &TableScript) -> Result<(), ApplyError> {
    let chain_indices: HashMap<String, usize> = table
        .chains
        .iter()
        .enumerate()
        .map(|(i, chain)| (chain.name.clone(), i))
        .collect();
    for command in &block.commands {
        apply_command(table, &chain_indices, command).map_err(|problem| ApplyError {
            command: command.clone(),
            problem,
        })?;
    }
    Ok(())
}

fn apply_command(
    table: &mut TableRules,
    chain_indices: &HashMap<String, usize>,
    command: &str,
) -> Result<(), ApplyProblem> {
    let mut words = Words::new(command);
    let mut next = || {
        words
            .next()
            .transpose()
            .map_err(|_| ApplyProblem::InvalidRule(ProblemKind::UnclosedQuote))
    };
    let (Some(verb), Some(chain)) = (next()?, next()?) else {
        return Err(ApplyProblem::UnsupportedCommand);
    };
    let after = next()?;
    let chain = match chain_indices.get(chain.text.as_ref()) {
        Some(&i) => (&mut table.chains[i], chain.range.end),
        None => return Err(ApplyProblem::MissingChain(chain.text.into_owned())),
    };
    let number = after.filter(|word| word.text.bytes().all(|b| b.is_ascii_digit()));
    let (chain, end) = chain;
    let end = number.as_ref().map_or(end, |word| word.range.end);
    let number = number.and_then(|word| word.text.parse::<usize>().ok());
    let rule = Rule::from_words(&command[end..])
        .map_err(|problem| ApplyProblem::InvalidRule(problem.kind))?;
    match verb.text.as_ref() {
        "-A" => chain.rules.push(rule),
        "-I" => {
            let index = number.unwrap_or(1).saturating_sub(1);
            if index > chain.rules.len() {
                return Err(ApplyProblem::MissingRule);
            }
            chain.rules.insert(index, rule);
        }
        "-D" => {
            let index = match number {
                Some(number) => number.checked_sub(1).filter(|i| *i < chain.rules.len()),
                None => chain.rules.iter().position(|known| *known == rule),
            };
            chain.rules.remove(index.ok_or(ApplyProblem::MissingRule)?);
        }
        _ => return Err(ApplyProblem::UnsupportedCommand),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iptables::script::Table;

    fn resulting_rules(commands: &[&str]) -> Result<Vec<String>, ApplyProblem> {
        let mut script = IptablesScript::new();
        let table = script.table_mut(Table::Nat);
        table.declare_chain("MINE");
        for command in commands {
            table.push_command(*command);
        }
        let dump = IptablesRules::from_script(&script).map_err(|error| error.problem)?;
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
        assert_eq!(
            resulting_rules(&["-D MINE -j A"]),
            Err(ApplyProblem::MissingRule)
        );
        assert_eq!(
            resulting_rules(&["-F MINE"]),
            Err(ApplyProblem::UnsupportedCommand)
        );
        assert_eq!(
            resulting_rules(&["-A OTHER -j A"]),
            Err(ApplyProblem::MissingChain("OTHER".into()))
        );
    }
}
