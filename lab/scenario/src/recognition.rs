//! Distinguishes labs from dumps and files of objects.

use crate::lab::KIND;
use crate::yaml;
use crate::yaml::tree::Tree;
use svclab_diagnostic::source::{FileId, Source};

/// Whether a text contains a lab document. An invalid lab is still a lab.
#[must_use]
pub fn has_lab_document(text: &str) -> bool {
    // Parsing a large file of objects would take seconds.
    let is_word_end = |letter: Option<char>| !letter.is_some_and(char::is_alphanumeric);
    let has_word = text.match_indices(KIND).any(|(start, _)| {
        is_word_end(text[..start].chars().next_back())
            && is_word_end(text[start + KIND.len()..].chars().next())
    });
    if !has_word {
        return false;
    }
    match yaml::parse(&Source::from_text("", text), FileId::default()) {
        Ok(documents) => documents.iter().any(|document| {
            let kind = document.get("kind").and_then(Tree::as_str);
            kind == Some(KIND)
        }),
        // An invalid lab is still a lab.
        Err(_) => text
            .lines()
            .any(|line| line.trim_end() == format!("kind: {KIND}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lab_document_is_recognized_in_any_yaml_style() {
        for text in [
            "apiVersion: svclab/v1\nkind: Lab\n",
            "kind: \"Lab\"\n",
            "kind: 'Lab' # comment\r\n",
            "kind:   Lab\n",
            "{\"apiVersion\": \"svclab/v1\", \"kind\": \"Lab\"}",
            "{apiVersion: svclab/v1, kind: Lab, metadata: {name: x}}",
            "kind: Node\n---\n? kind\n: Lab\n",
            "kind: Lab\nspec: {\n",
        ] {
            assert!(has_lab_document(text), "{text}");
        }
        for text in [
            "",
            "*nat\n-A POSTROUTING -m comment --comment \"kind: Lab\"\nCOMMIT\n",
            "kind: Node\nmetadata: {name: Lab, labels: {kind: Lab}}\n",
            "kind: Pod\nspec:\n  note: |\n    kind: Lab\n",
            "kind: Label\n",
        ] {
            assert!(!has_lab_document(text), "{text}");
        }
    }
}
