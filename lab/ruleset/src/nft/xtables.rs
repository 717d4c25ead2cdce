//! Recognises rules that use extensions of iptables.

use super::Rule;
use super::tokens::tokenize;

/// Mark before the name of an extension in older versions of nft, which look like a comment
/// (nftables v0.9.8, `src/xt.c`, `xt_stmt_xlate`).
pub(super) const OLD_MARK: &str = "# xt_";

/// Kinds of extensions after the word `xt` (nftables v1.0.6, `src/xt.c`, `xt_stmt_xlate`).
const KINDS: [&str; 3] = ["match", "target", "watcher"];

/// Match without an effect on packets.
const COMMENT: &str = "comment";

impl Rule {
    /// Whether the text has the name of an extension of iptables. nft does not print its options.
    #[must_use]
    pub fn lacks_options(&self) -> bool {
        let names = self.text.split(OLD_MARK).skip(1);
        let mut names = names.filter_map(|rest| rest.split_ascii_whitespace().next());
        let words = tokenize(&self.text).unwrap_or_default();
        let mut extensions = words.windows(3);
        names.any(|name| name != COMMENT)
            || extensions.any(|words| {
                let [xt, kind, name] = words else {
                    return false;
                };
                let is_kind = !kind.is_quoted && KINDS.contains(&kind.text);
                xt.is_unquoted("xt") && is_kind && name.text != COMMENT
            })
    }
}
