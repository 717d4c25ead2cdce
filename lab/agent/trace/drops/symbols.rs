//! The kernel's functions by their addresses.

use std::collections::BTreeMap;
use std::io::{self, BufRead};

/// By each of the addresses, the name of the function it is in, as `/proc/kallsyms`
/// lists them; none of those that it lists none for, and nothing where it hides
/// addresses.
///
/// # Errors
///
/// When the list cannot be read.
pub fn functions(
    mut list: impl BufRead,
    addresses: impl Iterator<Item = u64>,
) -> io::Result<BTreeMap<u64, String>> {
    let mut best: BTreeMap<u64, (u64, String)> = addresses
        .map(|address| (address, (0, String::new())))
        .collect();
    let mut line = Vec::new();
    while !best.is_empty() {
        line.clear();
        if list.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let Some((begin, name)) = symbol(&line) else {
            continue;
        };
        for (address, (closest, function)) in &mut best {
            if begin <= *address && begin > *closest {
                *closest = begin;
                name.clone_into(function);
            }
        }
    }
    Ok(best
        .into_iter()
        .filter(|(_, (closest, _))| *closest > 0)
        .map(|(address, (_, function))| (address, function))
        .collect())
}

/// The address and name in `ffffffff81000000 T _text`, of a function.
fn symbol(line: &[u8]) -> Option<(u64, &str)> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    matches!(words.next()?, "t" | "T" | "w" | "W").then_some(())?;
    Some((address, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_function_before_an_address_is_it() {
        let list = "\
0000000000000010 T early
0000000000000040 t late
0000000000000030 D data
0000000000000020 T middle\t[module]
";
        let found = functions(list.as_bytes(), [0x35, 0x40, 0x5].into_iter()).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|(at, name)| (*at, name.as_str()))
            .collect();
        assert_eq!(found, [(0x35, "middle"), (0x40, "late")]);
    }

    #[test]
    fn hidden_addresses_say_nothing() {
        let list = "0000000000000000 T early\n0000000000000000 T late\n";
        let found = functions(list.as_bytes(), [0x35].into_iter()).unwrap();
        assert!(found.is_empty());
    }
}
