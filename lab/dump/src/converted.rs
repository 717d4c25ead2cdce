//! Converts files with JSON to the text of their programs, so that one parser reads both.

use crate::node::{AS_TEXT, File};
use svclab_ruleset::json;
use svclab_ruleset::text::problem::Problem;
use svclab_ruleset::tool::Format;

/// Converts a file with the JSON of `ip -j` or `nft -j`. Returns the parts of the JSON that have no
/// text. Other files remain unchanged.
///
/// # Errors
///
/// Returns the position of invalid JSON. The file remains unchanged.
pub(super) fn convert_json(file: &mut File) -> Result<Vec<Problem>, Problem> {
    let detected = Format::detect(&file.text);
    let format = match (file.format, detected) {
        (Some(named), Some(detected)) if !named.is_compatible_with(detected) => None,
        (named, detected) => named.or(detected),
    };
    let Some(converted) = format.and_then(|format| json::convert(format, &file.text)) else {
        return Ok(Vec::new());
    };
    let converted = converted?;
    file.text = converted.text;
    file.name.push_str(AS_TEXT);
    file.format = format;
    Ok(converted.problems)
}
