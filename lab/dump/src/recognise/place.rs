//! Defines the network namespace in which a command runs, and recognises shells.

/// Network namespace in which a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Place {
    /// Namespace of the node.
    #[default]
    Node,
    /// Namespace of a process or a container. It may be the namespace of the node.
    Unknown,
    /// Another namespace.
    Elsewhere,
}

/// Shells that read commands from the terminal.
const SHELLS: [&str; 6] = ["sh", "bash", "ash", "dash", "zsh", "ksh"];

/// Returns the last component of the path of a program.
pub(super) fn program_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or_default()
}

/// Whether words start a shell without a script: `bash -l`.
pub(super) fn is_shell(words: &[&str]) -> bool {
    let is_option = |word: &&str| word.starts_with('-') && !word.ends_with('c');
    words.split_first().is_some_and(|(program, options)| {
        SHELLS.contains(&program_name(program)) && options.iter().all(is_option)
    })
}
