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
    let mut best: BTreeMap<u64, (Digits, Digits, String)> = addresses
        .map(|address| (address, (digits(address), digits(0), String::new())))
        .collect();
    let mut line = Vec::new();
    while !best.is_empty() {
        line.clear();
        if list.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        // There are some hundred thousand lines: they are compared as they stand.
        let Some(begin) = line.first_chunk() else {
            continue;
        };
        for (address, closest, function) in best.values_mut() {
            if begin <= address
                && begin > closest
                && let Some(name) = name(&line)
            {
                *closest = *begin;
                name.clone_into(function);
            }
        }
    }
    Ok(best
        .into_iter()
        .filter(|(_, (_, _, function))| !function.is_empty())
        .map(|(address, (_, _, function))| (address, function))
        .collect())
}

/// An address as it is listed.
type Digits = [u8; 16];

fn digits(address: u64) -> Digits {
    let mut digits = [b'0'; 16];
    let text = format!("{address:016x}");
    for (to, from) in digits.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    digits
}

/// The name in `ffffffff81000000 T _text`, of a function.
fn name(line: &[u8]) -> Option<&str> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let kind = words.nth(1)?;
    matches!(kind, "t" | "T" | "w" | "W").then(|| words.next())?
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
