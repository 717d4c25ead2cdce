//! Reads the offsets of structure members and the names of enumeration values from the kernel's
//! type information (BTF; Linux v6.12, `Documentation/bpf/btf.rst`).

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;

/// Kinds of types with members.
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;

/// Size in bytes of a type's description without members: name, info, and size or referenced type.
const TYPE_BYTES: usize = 12;

/// Maximum nesting of anonymous structures.
const MAX_DEPTH: usize = 16;

/// Types of one kernel.
#[derive(Debug)]
pub(super) struct Btf {
    bytes: Vec<u8>,
    strings: usize,
    /// Offset of each type's description. Type IDs start at 1.
    types: Vec<usize>,
    /// Offsets of the structures and enumerations, which are few.
    with_members: Vec<usize>,
}

impl Btf {
    /// Parses the contents of `/sys/kernel/btf/vmlinux`. Returns `None` if the data is incomplete
    /// or has the byte order of another machine.
    pub(super) fn new(bytes: Vec<u8>) -> Option<Self> {
        if u16::from_ne_bytes(*bytes.first_chunk()?) != MAGIC {
            return None;
        }
        let header = read_u32(&bytes, 4)?;
        let begin = header + read_u32(&bytes, 8)?;
        let end = begin + read_u32(&bytes, 12)?;
        let strings = header + read_u32(&bytes, 16)?;
        let (mut types, mut whole) = (Vec::new(), Vec::new());
        let mut offset = begin;
        while offset < end {
            types.push(offset);
            let info = u32::try_from(read_u32(&bytes, offset + 4)?).ok()?;
            if matches!(info >> 24 & 0x1f, STRUCT | ENUM) {
                whole.push(offset);
            }
            offset += TYPE_BYTES + trailing_bytes(info)?;
        }
        Some(Self {
            bytes,
            strings,
            types,
            with_members: whole,
        })
    }

    /// Returns the offset of a structure's member in bytes. `path` leads into nested structures.
    pub(super) fn offset(&self, structure: &str, path: &[&str]) -> Option<u32> {
        let mut type_offset = self.find(STRUCT, structure)?;
        let mut offset = 0;
        for name in path {
            let (bits, type_id) = self.member(type_offset, name, MAX_DEPTH)?;
            offset += bits / 8;
            type_offset = self.resolve(type_id)?;
        }
        Some(offset)
    }

    /// Returns the names of an enumeration's values.
    pub(super) fn names(&self, enumeration: &str) -> HashMap<u32, String> {
        let Some(type_offset) = self.find(ENUM, enumeration) else {
            return HashMap::new();
        };
        (0..self.count_members(type_offset))
            .filter_map(|each| {
                let member_offset = type_offset + TYPE_BYTES + 8 * each;
                let number = u32::try_from(read_u32(&self.bytes, member_offset + 4)?).ok()?;
                Some((number, self.name_at(member_offset)?.to_owned()))
            })
            .collect()
    }

    /// Returns the offset of the type with this kind and name.
    fn find(&self, kind: u32, name: &str) -> Option<usize> {
        let mut offsets = self.with_members.iter().copied();
        offsets.find(|at| self.kind(*at) == Some(kind) && self.has_name(*at, name))
    }

    /// Returns the bit offset and the type ID of a structure's member, including members of
    /// anonymous members.
    fn member(&self, type_offset: usize, name: &str, depth: usize) -> Option<(u32, usize)> {
        let flag = read_u32(&self.bytes, type_offset + 4)? >> 31 == 1;
        (0..self.count_members(type_offset)).find_map(|each| {
            let member_offset = type_offset + TYPE_BYTES + 12 * each;
            let type_id = read_u32(&self.bytes, member_offset + 4)?;
            let mut bits = u32::try_from(read_u32(&self.bytes, member_offset + 8)?).ok()?;
            if flag {
                // The upper byte is the width of a bit field.
                bits &= 0xff_ffff;
            }
            match self.name_at(member_offset)? {
                "" if depth > 0 => {
                    let (inside, of) = self.member(self.resolve(type_id)?, name, depth - 1)?;
                    Some((bits + inside, of))
                }
                member_name => (member_name == name).then_some((bits, type_id)),
            }
        })
    }

    /// Returns the number of members of a type.
    fn count_members(&self, type_offset: usize) -> usize {
        match self.kind(type_offset) {
            Some(STRUCT | UNION | ENUM) => {
                read_u32(&self.bytes, type_offset + 4).unwrap_or(0) & 0xffff
            }
            _ => 0,
        }
    }

    /// Returns the offset of the type with an ID, after resolving typedefs and qualifiers.
    fn resolve(&self, mut number: usize) -> Option<usize> {
        for _ in 0..MAX_DEPTH {
            let type_offset = *self.types.get(number.checked_sub(1)?)?;
            match self.kind(type_offset)? {
                // Typedef, volatile, const, restrict, and a tag.
                8..=11 | 18 => number = read_u32(&self.bytes, type_offset + 8)?,
                _ => return Some(type_offset),
            }
        }
        None
    }

    fn kind(&self, type_offset: usize) -> Option<u32> {
        let info = u32::try_from(read_u32(&self.bytes, type_offset + 4)?).ok()?;
        Some(info >> 24 & 0x1f)
    }

    /// Whether the name referenced at an offset equals `name`.
    fn has_name(&self, name_offset: usize, name: &str) -> bool {
        let rest =
            read_u32(&self.bytes, name_offset).and_then(|at| self.bytes.get(self.strings + at..));
        let rest = rest.and_then(|rest| rest.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }

    /// Returns the name referenced at an offset.
    fn name_at(&self, name_offset: usize) -> Option<&str> {
        let start = self.strings + read_u32(&self.bytes, name_offset)?;
        let rest = self.bytes.get(start..)?;
        let end = rest.iter().position(|each| *each == 0)?;
        std::str::from_utf8(&rest[..end]).ok()
    }
}

fn read_u32(bytes: &[u8], offset: usize) -> Option<usize> {
    usize::try_from(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?)).ok()
}

/// Returns the number of bytes that follow a type's description.
fn trailing_bytes(info: u32) -> Option<usize> {
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
    fn sample_btf() -> Vec<u8> {
        let strings = b"\0outer\0a\0b\0inner\0x\0y\0renamed\0why\0NO\0YES\0";
        let text = |name: &str| {
            let needle: Vec<u8> = name.bytes().chain([0]).collect();
            let position = strings
                .windows(needle.len())
                .position(|each| each == needle);
            u32::try_from(position.unwrap()).unwrap()
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
        let mut btf = MAGIC.to_ne_bytes().to_vec();
        btf.extend([1, 0]);
        for word in [size(24), size(0), size(types.len()), size(types.len())] {
            btf.extend(word);
        }
        btf.extend(size(strings.len()));
        btf.extend(types);
        btf.extend(strings);
        btf
    }

    #[test]
    fn btf_member_of_anonymous_structure_is_found() {
        let btf = Btf::new(sample_btf()).unwrap();
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
    fn btf_truncated_or_foreign_does_not_panic() {
        let whole = sample_btf();
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
