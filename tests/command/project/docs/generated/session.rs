//! Draws the console blocks of README.md as a picture of a terminal session. Other tests compare
//! these blocks with the output of the commands.

use std::fmt::Write as _;

use crate::project::docs::Page;

/// Width of the terminal in columns.
const COLUMNS: usize = 100;

/// Size of a character cell in pixels.
const CELL: (usize, usize) = (8, 18);

/// Time between two lines of output, and before the output of a command, in ms.
const PAUSE: (u32, u32) = (50, 1200);

/// Returns the picture as SVG. Lines appear one after another.
pub(super) fn render() -> String {
    let blocks = Page::read("README.md").blocks();
    let is_shown = |text: &str| text.starts_with("$ svclab ") && text.contains("node-port");
    let blocks = blocks.iter().filter(|block| is_shown(&block.text));
    let mut lines = Vec::new();
    for block in blocks {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(block.text.lines().flat_map(wrap));
    }
    let width = CELL.0 * (COLUMNS + 2);
    let height = CELL.1 * (lines.len() + 1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"Terminal session\">\n\
         <title>Terminal session: run, explain and why</title>\n\
         <style>text{{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#d7dde5;white-space:pre;\
         animation:line 0s linear both}}.command{{fill:#7fd1a8;font-weight:bold}}\
         .cause{{fill:#ffb870}}@keyframes line{{from{{opacity:0}}to{{opacity:1}}}}\
         @media (prefers-reduced-motion:reduce){{text{{animation:none}}}}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#14181e\"/>\n"
    );
    let mut time = 0;
    for (index, line) in lines.iter().enumerate() {
        let y = CELL.1 * (index + 1) + 4;
        let is_command = line.starts_with("$ ");
        let is_cause = line.starts_with("  >") || line.starts_with("  - ");
        let class = match (is_command, is_cause) {
            (true, _) => " class=\"command\"",
            (_, true) => " class=\"cause\"",
            _ => "",
        };
        if !line.is_empty() {
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{y}\"{class} style=\"animation-delay:{time}ms\">{}</text>",
                CELL.0,
                escape(line)
            );
        }
        time += if is_command { PAUSE.1 } else { PAUSE.0 };
    }
    svg + "</svg>"
}

/// Breaks a line at the width of the terminal.
fn wrap(line: &str) -> Vec<String> {
    let letters: Vec<char> = line.chars().collect();
    let parts = letters.chunks(COLUMNS).map(|part| part.iter().collect());
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() {
        return vec![String::new()];
    }
    parts
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
