//! Decodes the bytes of a file: UTF-8 or UTF-16, without the escape sequences of a terminal.

use std::borrow::Cow;

/// Escape character, which begins a sequence for the terminal.
const ESCAPE: char = '\u{1b}';

/// Decodes a file.
///
/// # Errors
///
/// Returns the number of bytes before the first byte that is not UTF-8.
pub(crate) fn decode(bytes: &[u8]) -> Result<String, usize> {
    if let Some(text) = decode_utf16(bytes) {
        return Ok(without_escapes(&text).into_owned());
    }
    // Windows programs begin a text with a byte order mark.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = str::from_utf8(bytes).map_err(|error| error.valid_up_to())?;
    Ok(without_escapes(text).into_owned())
}

/// Decodes the first bytes of a file, which may end within a character.
pub(crate) fn decode_head(head: &[u8]) -> String {
    let text = decode_utf16(head).map_or_else(|| String::from_utf8_lossy(head), Cow::Owned);
    without_escapes(text.trim_start_matches('\u{feff}')).into_owned()
}

/// Decodes UTF-16 with a byte order mark, as Windows PowerShell writes it. `None` for other texts.
fn decode_utf16(bytes: &[u8]) -> Option<String> {
    let to_unit = match bytes {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => return None,
    };
    let (pairs, _) = bytes[2..].as_chunks::<2>();
    let units: Vec<u16> = pairs.iter().map(|pair| to_unit(*pair)).collect();
    Some(String::from_utf16_lossy(&units))
}

/// Removes escape sequences: colours of `ip -c` and `grep --color`, and titles of windows (ECMA-48,
/// section 5.4).
fn without_escapes(text: &str) -> Cow<'_, str> {
    if !text.contains(ESCAPE) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(letter) = chars.next() {
        if letter != ESCAPE {
            kept.push(letter);
            continue;
        }
        match chars.peek() {
            // A control sequence ends with a letter or `@`, `~` and similar signs.
            Some('[') => {
                chars.next();
                while chars.next_if(|next| (' '..='?').contains(next)).is_some() {}
                chars.next_if(|next| ('@'..='~').contains(next));
            }
            // A command of the system ends with BEL or with an escape sequence.
            Some(']') => {
                while chars
                    .next_if(|next| !matches!(*next, '\u{7}' | ESCAPE | '\n'))
                    .is_some()
                {}
                chars.next_if_eq(&'\u{7}');
            }
            Some('(' | ')') => {
                chars.next();
                chars.next();
            }
            _ => drop(chars.next_if(|next| *next != '\n')),
        }
    }
    Cow::Owned(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_removed() {
        let text = "\u{1b}[36mvx0\u{1b}[0m: id \u{1b}[01;31m\u{1b}[K10\u{1b}[m\u{1b}[K\n\
                    \u{1b}]0;title\u{7}$ ip\u{1b}(B\u{1b}[?2004l\u{1b}]2;x\u{1b}\\ a\u{1b}";
        assert_eq!(without_escapes(text), "vx0: id 10\n$ ip a");
        assert_eq!(decode_head(text.as_bytes()), "vx0: id 10\n$ ip a");
    }

    #[test]
    fn utf16_with_mark_is_decoded() {
        let little: Vec<u8> = "\u{feff}*nat\n"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        let big: Vec<u8> = "\u{feff}*nat\n"
            .encode_utf16()
            .flat_map(u16::to_be_bytes)
            .collect();
        for bytes in [little, big, b"\xef\xbb\xbf*nat\n".to_vec()] {
            assert_eq!(decode_head(&bytes), "*nat\n");
            assert_eq!(decode(&bytes).as_deref(), Ok("*nat\n"));
        }
        assert_eq!(decode(b"a\xff"), Err(1));
    }
}
