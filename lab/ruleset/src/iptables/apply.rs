//! Computes the rules that a script creates in an empty namespace, without a kernel.

use std::collections::HashMap;

use thiserror::Error;

use super::rule::Rule;
use super::words::Words;
use super::{Chain, Dump, TableDump};
use crate::iptables::script::{Script, TableScript};
use crate::text::problem::Wrong;

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
    Rule(Wrong),
    /// The chain is neither built in nor declared.
    #[error("there is no chain {0}")]
    NoChain(String),
    /// The rule to delete does not exist, or the position is out of range.
    #[error("there is no such rule")]
    NoRule,
    /// The command is not `-A`, `-I` or `-D`.
    #[error("only -A, -I and -D are known")]
    Command,
}

impl Dump {
    /// Computes the rules that `script` creates in an empty namespace.
    ///
    /// # Errors
    ///
    /// Returns the first command that cannot be applied.
    pub fn of_script(script: &Script) -> Result<Self, ApplyError> {
        let mut dump = Self::default();
        for (table, block) in script.tables() {
            let built_in = table.built_in_chains().iter().map(|name| Chain {
                name: (*name).to_owned(),
                policy: {
                    let mut policies = block.policies.iter().rev();
                    let set = policies.find(|(chain, _)| chain == name);
                    Some(set.map_or("ACCEPT", |(_, policy)| policy).to_owned())
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
            let mut table = TableDump { table, chains };
            run(&mut table, block)?;
            dump.tables.push(table);
        }
        Ok(dump)
    }
}

fn run(table: &mut TableDump, block: &TableScript) -> Result<(), ApplyError> {
    let at: HashMap<String, usize> = table
        .chains
        .iter()
        .enumerate()
        .map(|(i, chain)| (chain.name.clone(), i))
        .collect();
    for command in &block.commands {
        one(table, &at, command).map_err(|problem| ApplyError {
            command: command.clone(),
            problem,
        })?;
    }
    Ok(())
}

fn one(
    table: &mut TableDump,
    at: &HashMap<String, usize>,
    command: &str,
) -> Result<(), ApplyProblem> {
    let mut words = Words::new(command);
    let mut next = || {
        words
            .next()
            .transpose()
            .map_err(|_| ApplyProblem::Rule(Wrong::Quote))
    };
    let (Some(verb), Some(chain)) = (next()?, next()?) else {
        return Err(ApplyProblem::Command);
    };
    let after = next()?;
    let chain = match at.get(chain.text.as_ref()) {
        Some(&i) => (&mut table.chains[i], chain.at.end),
        None => return Err(ApplyProblem::NoChain(chain.text.into_owned())),
    };
    let number = after.filter(|word| word.text.bytes().all(|b| b.is_ascii_digit()));
    let (chain, end) = chain;
    let end = number.as_ref().map_or(end, |word| word.at.end);
    let number = number.and_then(|word| word.text.parse::<usize>().ok());
    let rule =
        Rule::of_words(&command[end..]).map_err(|problem| ApplyProblem::Rule(problem.wrong))?;
    match verb.text.as_ref() {
        "-A" => chain.rules.push(rule),
        "-I" => {
            let before = number.unwrap_or(1).saturating_sub(1);
            if before > chain.rules.len() {
                return Err(ApplyProblem::NoRule);
            }
            chain.rules.insert(before, rule);
        }
        "-D" => {
            let found = match number {
                Some(number) => number.checked_sub(1).filter(|i| *i < chain.rules.len()),
                None => chain.rules.iter().position(|known| *known == rule),
            };
            chain.rules.remove(found.ok_or(ApplyProblem::NoRule)?);
        }
        _ => return Err(ApplyProblem::Command),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iptables::script::Table;

    fn rules(commands: &[&str]) -> Result<Vec<String>, ApplyProblem> {
        let mut script = Script::new();
        let table = script.table(Table::Nat);
        table.chain("MINE");
        for command in commands {
            table.command(*command);
        }
        let dump = Dump::of_script(&script).map_err(|error| error.problem)?;
        let chain = dump.chain(Table::Nat, "MINE").unwrap();
        Ok(chain.rules.iter().map(Rule::text).collect())
    }

    #[test]
    fn commands_act_in_their_order() {
        let left = rules(&[
            "-A MINE -j A",
            "-I MINE -j B",
            "-I MINE 2 -j C",
            "-A MINE -j D",
            "-D MINE -j A",
        ]);
        assert_eq!(left.unwrap(), ["-j B", "-j C", "-j D"]);
    }

    #[test]
    fn what_iptables_would_refuse_is_refused() {
        assert_eq!(rules(&["-D MINE -j A"]), Err(ApplyProblem::NoRule));
        assert_eq!(rules(&["-F MINE"]), Err(ApplyProblem::Command));
        assert_eq!(
            rules(&["-A OTHER -j A"]),
            Err(ApplyProblem::NoChain("OTHER".into()))
        );
    }
}
