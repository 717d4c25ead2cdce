//! Tests the spans, aliases, keys and limits of parsed files.

use super::*;

fn trees(text: &str) -> Vec<Tree> {
    let source = Source::from_bytes("x", text.into()).expect("a source");
    parse(&source, FileId::default()).expect("YAML")
}

fn error(text: &str) -> YamlError {
    let source = Source::from_bytes("x", text.into()).expect("a source");
    parse(&source, FileId::default()).expect_err("should not parse")
}

/// Returns the text in a node's span.
fn text_of<'t>(text: &'t str, node: &Tree) -> &'t str {
    let byte = |n: u32| usize::try_from(n).expect("a small number");
    &text[byte(node.span.start)..byte(node.span.end)]
}

#[test]
fn spans_are_exact_with_bom_crlf_and_umlauts() {
    let text = "\u{feff}a: 1\r\nü:\r\n  - x\r\n  - {c: \"d\\n\", e: 'f'}  # why\r\n\r\n";
    let tree = &trees(text)[0];
    let at = |path: &[_]| tree.node_at(path).expect("a node");
    assert_eq!(text_of(text, at(crate::path!["a"])), "1");
    assert_eq!(text_of(text, at(crate::path!["ü", 0])), "x");
    assert_eq!(
        text_of(text, at(crate::path!["ü", 1])),
        "{c: \"d\\n\", e: 'f'}"
    );
    assert_eq!(text_of(text, at(crate::path!["ü", 1, "c"])), "\"d\\n\"");
    let f = at(crate::path!["ü", 1, "e"]).span;
    assert_eq!((f.line, f.column), (4, 19));
    let key = tree.key_span("ü").expect("a key");
    assert_eq!((key.line, key.column, key.end - key.start), (2, 1, 2));
}

#[test]
fn block_map_span_ends_with_last_value() {
    let text = "a:\n  b: 1\n  c: 2   \n\n# far away\nd: 3\n";
    let tree = &trees(text)[0];
    assert_eq!(text_of(text, tree.get("a").expect("a")), "b: 1\n  c: 2");
    assert_eq!(
        text_of(text, tree),
        "a:\n  b: 1\n  c: 2   \n\n# far away\nd: 3"
    );
}

#[test]
fn empty_documents_are_omitted() {
    assert_eq!(
        trees("---\n---\na: 1\n---\n# nothing\n--- 2\n...\n").len(),
        2
    );
}

#[test]
fn alias_resolves_within_its_document_only() {
    let tree = &trees("a: &x {b: 1}\nc: *x\n")[0];
    let b = tree.node_at(crate::path!["c", "b"]).expect("b");
    assert_eq!(
        (b.span.line, tree.get("c").map(|c| c.span.line)),
        (1, Some(2))
    );
    assert!(matches!(
        error("a: &x 1\n---\nb: *x\n"),
        YamlError::Syntax { .. }
    ));
}

#[test]
fn scalar_keys_are_texts() {
    let tree = &trees("{1.20: a, true: b, 'x y': c}")[0];
    let keys: Vec<_> = tree
        .as_map()
        .expect("a map")
        .keys()
        .map(AsRef::as_ref)
        .collect();
    assert_eq!(keys, ["1.20", "true", "x y"]);
    assert!(matches!(
        error("? [a]\n: b\n"),
        YamlError::InvalidKey { .. }
    ));
    assert!(matches!(error("~: b\n"), YamlError::InvalidKey { .. }));
    // A quoted key equals the same key without quotes.
    assert!(matches!(
        error("a: 1\n'a': 2\n"),
        YamlError::DuplicateKey { .. }
    ));
}

#[test]
fn core_tags_apply_other_tags_are_refused() {
    assert_eq!(
        trees("a: !!str 5")[0].get("a").and_then(Tree::as_str),
        Some("5")
    );
    assert!(matches!(error("a: !!int x"), YamlError::TagMismatch { .. }));
    assert!(matches!(error("a: !mine x"), YamlError::UnknownTag { .. }));
    assert!(matches!(
        error("a: !!set {x, y}"),
        YamlError::UnknownTag { .. }
    ));
}

#[test]
fn nesting_up_to_max_depth_is_accepted() {
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(trees(&nested(MAX_DEPTH)).len(), 1);
    assert!(matches!(
        error(&nested(MAX_DEPTH + 1)),
        YamlError::TooDeep { .. }
    ));
    // Levels that aliases add count as well.
    let text = format!("a: &a {}\nb: &b {}\n", nested(50), "[*a]");
    assert_eq!(trees(&text).len(), 1);
    let text = format!(
        "a: &a {}\nb: {}*a{}\n",
        nested(60),
        "[".repeat(60),
        "]".repeat(60)
    );
    assert!(matches!(error(&text), YamlError::TooDeep { .. }));
}
