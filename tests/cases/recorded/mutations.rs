//! Drops, duplicates and swaps every line of every recording, and changes each of its words. The
//! comparison must report every change except known noise, and must not report noise.
//!
//! With `SVCLAB_FULL`, runs all changes, else one of [`CHANGES_PER_TRIAL`].

use std::path::Path;

use libtest_mimic::{Failed, Trial};
use svclab_dump::{File, NodeDump, compare};
use svclab_ruleset::tool::Format;
use svclab_test_support::{recordings, root};

use super::parse_dump;

/// An ordinary run tries one of this many changes; a prime, so that the kinds of changes alternate.
const CHANGES_PER_TRIAL: usize = 311;

pub fn trials() -> Vec<Trial> {
    recordings::files()
        .into_iter()
        .map(|path| {
            let home = root().join("tests/recorded/kube-proxy");
            let name = path.strip_prefix(&home).unwrap_or(&path).display();
            let name = format!("mutations::{}", name.to_string().replace('/', "::"));
            Trial::test(name, move || mutate(&path))
        })
        .collect()
}

#[derive(Debug, Clone, Copy)]
enum Mutation {
    Drop,
    Duplicate,
    SwapWithNext,
    /// Changes the word with this index.
    Word(usize),
}

fn mutate(path: &Path) -> Result<(), Failed> {
    let format = recordings::format_of(path).ok_or("no dump")?;
    let text = std::fs::read_to_string(path)?;
    let lines: Vec<&str> = text.lines().collect();
    let known = parse_dump(&[(format, &text)])?;
    let step = if std::env::var_os("SVCLAB_FULL").is_some() {
        1
    } else {
        CHANGES_PER_TRIAL
    };
    // The text length offsets the count, so that the files get different changes.
    let mut count = text.len();
    let mut failures = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let words = line.split_ascii_whitespace().count();
        let changes = [Mutation::Drop, Mutation::Duplicate, Mutation::SwapWithNext]
            .into_iter()
            .chain((0..words).map(Mutation::Word));
        for mutation in changes {
            count += 1;
            if count % step != 0 {
                continue;
            }
            let Some(mutated) = apply_mutation(&lines, index, mutation) else {
                continue;
            };
            let noise = noise(format, &lines, index, mutation, &mutated);
            match (reports_difference(format, &known, &mutated), noise) {
                (true, None) | (false, Some(_)) => {}
                (false, None) => {
                    failures.push(format!(
                        "not reported: {mutation:?} of line {}: {line}",
                        index + 1
                    ));
                }
                (true, Some(noise)) => {
                    failures.push(format!(
                        "reported, although {noise}: {mutation:?} of line {}: {line}",
                        index + 1
                    ));
                }
            }
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    Err(failures.join("\n").into())
}

/// Whether `svclab diff` would exit with another code than 0.
fn reports_difference(format: Format, known: &NodeDump, changed: &[String]) -> bool {
    let read = NodeDump::parse(vec![File {
        name: "changed".to_owned(),
        format: Some(format),
        text: changed.join("\n") + "\n",
    }]);
    !read.has_no_errors() || !compare(known, &read.dump).is_empty()
}

/// Returns the lines after a change; `None` if the change has no effect.
fn apply_mutation(lines: &[&str], index: usize, change: Mutation) -> Option<Vec<String>> {
    let mut changed: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
    match change {
        Mutation::Drop => {
            changed.remove(index);
        }
        Mutation::Duplicate => changed.insert(index, lines[index].to_owned()),
        Mutation::SwapWithNext => {
            if lines.get(index + 1)? == &lines[index] {
                return None;
            }
            changed.swap(index, index + 1);
        }
        Mutation::Word(n) => changed[index] = change_word(lines[index], n)?,
    }
    Some(changed)
}

/// Returns the line with the last letter or digit of its `n`th word changed.
fn change_word(line: &str, n: usize) -> Option<String> {
    let word = line.split_ascii_whitespace().nth(n)?;
    let start = word.as_ptr() as usize - line.as_ptr() as usize;
    let place = word.rfind(|c: char| c.is_ascii_alphanumeric());
    let (place, new) = match place {
        Some(place) => {
            let new = match word.as_bytes()[place] {
                b'9' => '0',
                b'z' => 'a',
                b'Z' => 'A',
                next_char => char::from(next_char + 1),
            };
            (place, new)
        }
        None => (0, if word.starts_with('+') { '-' } else { '+' }),
    };
    let mut changed = line.to_owned();
    changed.replace_range(start + place..=start + place, &new.to_string());
    Some(changed)
}

/// Returns why a change is noise; `None` if the change has a meaning.
fn noise(
    format: Format,
    lines: &[&str],
    index: usize,
    change: Mutation,
    changed: &[String],
) -> Option<&'static str> {
    match format {
        Format::Rules(..) => noise_of_rules(lines, index, change, changed),
        Format::Sets => noise_of_sets(lines, index, change, changed),
        Format::Nft => noise_of_nft(lines, index, change),
        Format::VirtualServers => noise_of_servers(lines, index, change),
        Format::Links => noise_of_links(lines, index, change),
        _ => None,
    }
}

fn noise_of_rules(
    lines: &[&str],
    index: usize,
    change: Mutation,
    changed: &[String],
) -> Option<&'static str> {
    let line = lines[index];
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match change {
        Mutation::Word(2) if line.starts_with(':') => Some("packet counters are ignored"),
        Mutation::Word(n) if n > 0 && words[n - 1] == "--probability" => {
            // The kernel stores a 32-bit number of units of 2^-31.
            let kernel_value = |line: &str| -> Option<u32> {
                let word = line.split_ascii_whitespace().nth(n)?;
                let bits = word.parse::<f64>().ok()? * f64::from(1_u32 << 31);
                format!("{bits:.0}").parse().ok()
            };
            (kernel_value(line) == kernel_value(&changed[index]))
                .then_some("the kernel keeps 31 bits")
        }
        Mutation::Drop if line.starts_with(':') && words[1] == "ACCEPT" => {
            let table = &lines[index..];
            let table = table.iter().take_while(|line| **line != "COMMIT");
            let rule_prefix = format!("-A {} ", &words[0][1..]);
            let is_used = table.into_iter().any(|line| line.starts_with(&rule_prefix));
            (!is_used).then_some("the declaration of a built-in chain without rules is optional")
        }
        Mutation::SwapWithNext => {
            let next = *lines.get(index + 1)?;
            match (line.as_bytes()[0], next.as_bytes()[0]) {
                (b':', b':') => Some("chains are declared in any order"),
                (b':', b'-') => {
                    let name = &words[0][1..];
                    let used = next.starts_with(&format!("-A {name} "));
                    (!used).then_some("a chain can be declared after rules of other chains")
                }
                (b'-', b'-') => noise_of_swapped_rules(line, next),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Returns why swapping two rules is noise.
fn noise_of_swapped_rules(line: &str, next: &str) -> Option<&'static str> {
    let chain = |rule: &str| rule.split(' ').nth(1).unwrap_or_default().to_owned();
    if chain(line) != chain(next) {
        return Some("the rules have different chains");
    }
    let lists = [
        "KUBE-SERVICES",
        "KUBE-NODEPORTS",
        "KUBE-EXTERNAL-SERVICES",
        "KUBE-PROXY-FIREWALL",
    ];
    let service = |rule: &str| -> Option<String> {
        let (_, comment) = rule.split_once("--comment \"")?;
        let name = comment.split(' ').next()?;
        name.contains('/').then(|| name.to_owned())
    };
    if lists.contains(&chain(line).as_str())
        && let (Some(first_service), Some(second_service)) = (service(line), service(next))
    {
        return (first_service != second_service)
            .then_some("kube-proxy lists services in any order");
    }
    (chain(line) == "KUBE-IPVS-OUT-FILTER").then_some("kube-proxy lists services in any order")
}

fn noise_of_sets(
    lines: &[&str],
    index: usize,
    change: Mutation,
    changed: &[String],
) -> Option<&'static str> {
    let words: Vec<&str> = lines[index].split_ascii_whitespace().collect();
    match change {
        Mutation::Word(n)
            if n > 0 && ["hashsize", "initval", "bucketsize"].contains(&words[n - 1]) =>
        {
            let word = changed[index].split_ascii_whitespace().nth(n)?;
            let hex = word.strip_prefix("0x");
            let is_number = hex.map_or(word.parse::<u32>().is_ok(), |digits| {
                u32::from_str_radix(digits, 16).is_ok()
            });
            is_number.then_some("the kernel or the program selects the value")
        }
        Mutation::SwapWithNext => {
            let next: Vec<&str> = lines.get(index + 1)?.split_ascii_whitespace().collect();
            let is_set_with_entry = words[0] == "create" && next[0] == "add" && words[1] == next[1];
            (!is_set_with_entry).then_some("sets and their entries have no order")
        }
        _ => None,
    }
}

fn noise_of_nft(lines: &[&str], index: usize, change: Mutation) -> Option<&'static str> {
    let line = lines[index].trim();
    let next = lines.get(index + 1).map_or("", |line| line.trim());
    match change {
        Mutation::Word(_) => None,
        _ if line.is_empty() => Some("empty lines have no meaning"),
        Mutation::Drop => (line == "size 65535").then_some("this size is the kernel's default"),
        Mutation::Duplicate => None,
        Mutation::SwapWithNext if next.is_empty() => Some("empty lines have no meaning"),
        Mutation::SwapWithNext if line == next => Some("indentation has no meaning"),
        Mutation::SwapWithNext => {
            let opened = lines[..index].iter().rev().map(|line| line.trim());
            let enclosing_block = opened.clone().find(|line| {
                let begins = ["table ", "set ", "map ", "chain "];
                begins.iter().any(|begins| line.starts_with(begins)) && line.ends_with('{')
            })?;
            let both_lines = |is: fn(&str) -> bool| is(line) && is(next);
            let whole = |line: &str| {
                let begins = [
                    "type ",
                    "size ",
                    "flags ",
                    "timeout ",
                    "comment \"",
                    "elements = {",
                ];
                begins.iter().any(|begins| line.starts_with(begins)) && !line.ends_with(',')
            };
            let entry = |line: &str| line.ends_with(',') && !line.starts_with("elements");
            let about = |line: &str| line.starts_with("comment \"") || line.starts_with("type ");
            let braces = |line: &str| line.ends_with('{') || line == "}";
            if enclosing_block.starts_with("chain ") {
                let property = (about(line) || about(next)) && !braces(line) && !braces(next);
                return property.then_some("properties of a chain have no order");
            }
            if enclosing_block.starts_with("table ") {
                return None;
            }
            if both_lines(whole) {
                return Some("properties of a set have no order");
            }
            both_lines(entry).then_some("entries have no order")
        }
    }
}

fn noise_of_servers(lines: &[&str], index: usize, change: Mutation) -> Option<&'static str> {
    let Mutation::SwapWithNext = change else {
        return None;
    };
    let (line, next) = (lines[index], lines.get(index + 1)?);
    let virtual_server = |line: &str| line.split(' ').nth(2).unwrap_or_default().to_owned();
    let is_server_with_backend = line.starts_with("-A")
        && next.starts_with("-a")
        && virtual_server(line) == virtual_server(next);
    (!is_server_with_backend).then_some("ipvsadm sorts its output")
}

fn noise_of_links(lines: &[&str], index: usize, change: Mutation) -> Option<&'static str> {
    let words: Vec<&str> = lines[index].split_ascii_whitespace().collect();
    match change {
        Mutation::Word(0) if words[0].ends_with(':') => {
            Some("interface numbers depend on the order of creation")
        }
        Mutation::Word(3) if words[0].starts_with("link/") => {
            Some("the link-layer address is ignored")
        }
        Mutation::Word(1) if words[0].starts_with("link/") => {
            // No link-local address is derived from this address.
            let rest = lines[index + 1..].iter();
            let mut lines_of_interface = rest.take_while(|line| line.starts_with(' '));
            let has_derived_address = lines_of_interface.any(|line| line.contains("inet6 fe80::"));
            (!has_derived_address).then_some("the link-layer address is ignored")
        }
        _ => None,
    }
}
