//! Searches words in the text of an answer.

/// Whether a text in lower case contains all of the words. A word that ends with `*` matches the
/// beginning of a longer word, and a word that begins with `*` matches the end.
pub(super) fn contains_words(text: &str, words: &[String]) -> bool {
    words.iter().all(|word| {
        let word = word.to_lowercase();
        let (is_end, word) = strip(word.strip_prefix('*'), &word);
        let (is_beginning, word) = strip(word.strip_suffix('*'), word);
        contains(text, word, is_beginning, is_end)
    })
}

fn strip<'a>(stripped: Option<&'a str>, word: &'a str) -> (bool, &'a str) {
    (stripped.is_some(), stripped.unwrap_or(word))
}

/// Whether the text names any node of the lab.
pub(super) fn names_node(text: &str) -> bool {
    contains(text, "node-", true, false)
}

/// Whether a sentence in lower case describes a loss.
pub(super) fn describes_loss(text: &str) -> bool {
    const LOSSES: [&str; 9] = [
        "dropped",
        "reject",
        "refused",
        "not received",
        "no route",
        "returned before",
        "sysctl",
        "policy",
        "neighbour",
    ];
    names_object(text) || LOSSES.iter().any(|loss| text.contains(loss))
}

/// Whether a sentence in lower case names an object as a cause: a rule by its number, a sysctl, a
/// policy, a neighbour, or a missing route. A raw drop reason does not.
pub(super) fn names_object(text: &str) -> bool {
    const OBJECTS: [&str; 6] = [
        "sysctl",
        "policy",
        "neighbour",
        "no route",
        "no outgoing route",
        "mtu",
    ];
    let mut rules = text.split("rule ").skip(1);
    rules.any(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        || OBJECTS.iter().any(|object| text.contains(object))
}

fn contains(text: &str, word: &str, is_beginning: bool, is_end: bool) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        let starts = !is_end && continues(before.chars().rev(), word.chars().next());
        let ends = !is_beginning && continues(after.chars(), word.chars().last());
        !starts && !ends
    })
}

/// Whether the characters beside a word continue it: a letter or digit, or a `-`, `.` or `:` within
/// a name or an address.
fn continues(mut beside: impl Iterator<Item = char>, edge: Option<char>) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    if !edge.is_some_and(is_word) {
        return false;
    }
    match beside.next() {
        Some('-' | '.') => beside.next().is_some_and(is_word),
        Some(next) => is_word(next),
        None => false,
    }
}
