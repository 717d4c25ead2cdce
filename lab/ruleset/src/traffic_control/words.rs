//! Distinguishes the options of a queue or class that `tc` prints only with `-d`.

/// Options of one kind in canonical form.
#[derive(Debug, Default)]
pub(super) struct Options {
    /// Words that `tc` prints without `-d`.
    pub(super) plain: Vec<String>,
    /// Whether `-d` was used: words are present that `tc` prints only with `-d`.
    pub(super) has_details: bool,
}

/// Kinds of queues and classes with options that `tc` prints only with `-d`, and the names of these
/// options (iproute2 6.1, `tc/q_*.c`, `show_details`).
const DETAILS: [(&str, &[&str]); 6] = [
    ("htb", &["quantum", "level", "mpu"]),
    ("tbf", &["mpu"]),
    ("red", &["ewma", "probability", "Plog", "Scell_log"]),
    ("choke", &["ewma", "probability", "Plog", "Scell_log"]),
    ("gred", &["ewma", "probability", "Plog", "Scell_log"]),
    ("sfq", &["flows"]),
];

/// Whether `tc -d` prints more options of the kind than `tc`.
pub(super) fn has_more_details(kind: &str) -> bool {
    DETAILS.iter().any(|(known, _)| *known == kind)
}

/// Separates the options that `tc` prints without `-d` from other options.
pub(super) fn separate(kind: &str, words: &[&str]) -> Options {
    let details = DETAILS.iter().find(|(known, _)| *known == kind);
    let details = details.map_or(&[][..], |(_, names)| names);
    let mut options = Options::default();
    let mut words = words.iter().copied().peekable();
    while let Some(word) = words.next() {
        let is_default_layer = word == "linklayer" && words.peek() == Some(&"ethernet");
        if is_default_layer || details.contains(&word) {
            words.next();
            options.has_details = true;
            continue;
        }
        // The number of bytes in a cell follows the size: `burst 10Kb/1`.
        let size = words.peek().and_then(|value| value.split_once('/'));
        match (kind, word, size) {
            ("htb" | "tbf", "burst" | "cburst" | "mtu", Some((size, _))) => {
                let name = if word == "mtu" { "minburst" } else { word };
                options.plain.extend([name.to_owned(), size.to_owned()]);
                options.has_details = true;
                words.next();
            }
            _ => options.plain.push(word.to_owned()),
        }
    }
    options
}
