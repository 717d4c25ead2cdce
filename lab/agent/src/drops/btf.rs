//! Reads the offsets of structure members and the names of enumeration values from the kernel's
//! type information (BTF; Linux v6.12, `Documentation/bpf/btf.rst`).

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;

/// Kinds of types with members.
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;

/// Size in bytes of a type's description without members: name, info, and size or referenced type.
const TYPE: usize = 12;

/// Maximum nesting of anonymous structures.
const DEPTH: usize = 16;

/// Types of one kernel.
#[derive(Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    strings: usize,
    /// Offset of each type's description. Type IDs start at 1.
    types: Vec<usize>,
    /// Offsets of the structures and enumerations, which are few.
    whole: Vec<usize>,
}

impl Btf {
    /// Parses the contents of `/sys/kernel/btf/vmlinux`. Returns `None` if the data is incomplete
    /// or has the byte order of another machine.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        if u16::from_ne_bytes(*bytes.first_chunk()?) != MAGIC {
            return None;
        }
        let header = word(&bytes, 4)?;
        let begin = header + word(&bytes, 8)?;
        let end = begin + word(&bytes, 12)?;
        let strings = header + word(&bytes, 16)?;
        let (mut types, mut whole) = (Vec::new(), Vec::new());
        let mut at = begin;
        while at < end {
            types.push(at);
            let info = u32::try_from(word(&bytes, at + 4)?).ok()?;
            if matches!(info >> 24 & 0x1f, STRUCT | ENUM) {
                whole.push(at);
            }
            at += TYPE + behind(info)?;
        }
        Some(Self {
            bytes,
            strings,
            types,
            whole,
        })
    }

    /// Returns the offset of a structure's member in bytes. `path` leads into nested structures.
    #[must_use]
    pub fn offset(&self, structure: &str, path: &[&str]) -> Option<u32> {
        let mut at = self.named(STRUCT, structure)?;
        let mut offset = 0;
        for name in path {
            let (bits, of) = self.member(at, name, DEPTH)?;
            offset += bits / 8;
            at = self.plain(of)?;
        }
        Some(offset)
    }

    /// Returns the names of an enumeration's values.
    #[must_use]
    pub fn names(&self, enumeration: &str) -> HashMap<u32, String> {
        let Some(at) = self.named(ENUM, enumeration) else {
            return HashMap::new();
        };
        (0..self.members(at))
            .filter_map(|each| {
                let at = at + TYPE + 8 * each;
                let number = u32::try_from(word(&self.bytes, at + 4)?).ok()?;
                Some((number, self.text(at)?.to_owned()))
            })
            .collect()
    }

    /// Returns the offset of the type with this kind and name.
    fn named(&self, kind: u32, name: &str) -> Option<usize> {
        let mut all = self.whole.iter().copied();
        all.find(|at| self.kind(*at) == Some(kind) && self.is(*at, name))
    }

    /// Returns the bit offset and the type ID of a structure's member, including members of
    /// anonymous members.
    fn member(&self, at: usize, name: &str, deeper: usize) -> Option<(u32, usize)> {
        let flag = word(&self.bytes, at + 4)? >> 31 == 1;
        (0..self.members(at)).find_map(|each| {
            let at = at + TYPE + 12 * each;
            let of = word(&self.bytes, at + 4)?;
            let mut bits = u32::try_from(word(&self.bytes, at + 8)?).ok()?;
            if flag {
                // The upper byte is the width of a bit field.
                bits &= 0xff_ffff;
            }
            match self.text(at)? {
                "" if deeper > 0 => {
                    let (inside, of) = self.member(self.plain(of)?, name, deeper - 1)?;
                    Some((bits + inside, of))
                }
                own => (own == name).then_some((bits, of)),
            }
        })
    }

    /// Returns the number of members of a type.
    fn members(&self, at: usize) -> usize {
        match self.kind(at) {
            Some(STRUCT | UNION | ENUM) => word(&self.bytes, at + 4).unwrap_or(0) & 0xffff,
            _ => 0,
        }
    }

    /// Returns the offset of the type with an ID, after resolving typedefs and qualifiers.
    fn plain(&self, mut number: usize) -> Option<usize> {
        for _ in 0..DEPTH {
            let at = *self.types.get(number.checked_sub(1)?)?;
            match self.kind(at)? {
                // Typedef, volatile, const, restrict, and a tag.
                8..=11 | 18 => number = word(&self.bytes, at + 8)?,
                _ => return Some(at),
            }
        }
        None
    }

    fn kind(&self, at: usize) -> Option<u32> {
        let info = u32::try_from(word(&self.bytes, at + 4)?).ok()?;
        Some(info >> 24 & 0x1f)
    }

    /// Whether the name referenced at an offset equals `name`.
    fn is(&self, at: usize, name: &str) -> bool {
        let rest = word(&self.bytes, at).and_then(|at| self.bytes.get(self.strings + at..));
        let rest = rest.and_then(|rest| rest.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }

    /// Returns the name referenced at an offset.
    fn text(&self, at: usize) -> Option<&str> {
        let from = self.strings + word(&self.bytes, at)?;
        let rest = self.bytes.get(from..)?;
        let end = rest.iter().position(|each| *each == 0)?;
        std::str::from_utf8(&rest[..end]).ok()
    }
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?)).ok()
}

/// Returns the number of bytes that follow a type's description.
fn behind(info: u32) -> Option<usize> {
    let members = usize::try_from(info & 0xffff).ok()?;
    Some(match info >> 24 & 0x1f {
        // An integer, a variable, a declaration tag.
        1 | 14 | 17 => 4,
        // An array.
        3 => 12,
        // Structures, unions, sections and 64-bit enumerations.
        4 | 5 | 15 | 19 => 12 * members,
        // Enumerations and functions.
        6 | 13 => 8 * members,
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the type information of `struct outer { u8 a; struct { renamed b; }; }` and of `enum
    /// why { NO = 0, YES = 7 }`. `renamed` is `struct inner { u32 x; u32 y; }`.
    fn description() -> Vec<u8> {
        let strings = b"\0outer\0a\0b\0inner\0x\0y\0renamed\0why\0NO\0YES\0";
        let text = |name: &str| {
            let wanted: Vec<u8> = name.bytes().chain([0]).collect();
            let at = strings
                .windows(wanted.len())
                .position(|each| each == wanted);
            u32::try_from(at.unwrap()).unwrap()
        };
        let info = |kind: u32, members: u32| kind << 24 | members;
        let words = [
            // 1: an integer, 2: the inner structure, 3: its typedef.
            vec![0, info(1, 0), 4, 32],
            vec![
                text("inner"),
                info(4, 2),
                8,
                text("x"),
                1,
                0,
                text("y"),
                1,
                32,
            ],
            vec![text("renamed"), info(8, 0), 2],
            // 4: the anonymous structure, 5: the outer structure, whose offsets contain widths.
            vec![0, info(4, 1), 8, text("b"), 3, 0],
            vec![
                text("outer"),
                info(4, 2) | 1 << 31,
                12,
                text("a"),
                1,
                8 << 24,
                0,
                4,
                32,
            ],
            vec![text("why"), info(6, 2), 4, text("NO"), 0, text("YES"), 7],
        ]
        .concat();
        let types: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let size = |bytes: usize| u32::try_from(bytes).unwrap().to_ne_bytes();
        let mut all = MAGIC.to_ne_bytes().to_vec();
        all.extend([1, 0]);
        for word in [size(24), size(0), size(types.len()), size(types.len())] {
            all.extend(word);
        }
        all.extend(size(strings.len()));
        all.extend(types);
        all.extend(strings);
        all
    }

    #[test]
    fn members_are_found_inside_what_has_no_name() {
        let btf = Btf::new(description()).unwrap();
        assert_eq!(btf.offset("outer", &["a"]), Some(0));
        assert_eq!(btf.offset("outer", &["b"]), Some(4));
        assert_eq!(btf.offset("outer", &["b", "y"]), Some(8));
        assert_eq!(btf.offset("outer", &["y"]), None);
        assert_eq!(btf.offset("other", &["a"]), None);
        let names = btf.names("why");
        assert_eq!(names.len(), 2);
        assert_eq!(names[&7], "YES");
    }

    #[test]
    fn what_is_cut_off_or_another_s_says_nothing() {
        let whole = description();
        for length in 0..whole.len() {
            if let Some(btf) = Btf::new(whole[..length].to_vec()) {
                let _ = btf.offset("outer", &["b", "y"]);
                let _ = btf.names("why");
            }
        }
        let mut swapped = whole;
        swapped.swap(0, 1);
        assert!(Btf::new(swapped).is_none());
    }
}
