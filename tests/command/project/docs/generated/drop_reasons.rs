//! Renders the list of the kernel's reasons and functions that drop packets.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use svclab_judge::{DROP_TABLE, DropRow};
use svclab_report::describe_drop;

use super::{NOTE, cell, table};

/// Returns the number of different names in rows.
fn count(rows: &[&DropRow], name: impl Fn(&DropRow) -> Option<&'static str>) -> usize {
    let names: BTreeSet<_> = rows.iter().map(|row| name(row)).collect();
    names.len()
}

/// Returns the chapter.
pub(super) fn render() -> String {
    let is_reason = |row: &&DropRow| row.reason.is_some();
    let (reasons, functions): (Vec<&DropRow>, Vec<&DropRow>) =
        DROP_TABLE.iter().partition(is_reason);
    let mut text = format!(
        "# Drop reasons\n\n{NOTE}\n\nThe kernel reports for each dropped packet a reason and the \
         function that freed the packet. `svclab explain` prints a sentence for {} reasons and {} \
         functions:\n\n```text\n\
         SYN from SOURCE was dropped in NAMESPACE on ingress through INTERFACE: CAUSE (REASON in \
         FUNCTION)\n```\n\n\
         - Names of reasons are those of `include/net/dropreason-core.h`, without \
         `SKB_DROP_REASON_`, from Linux v5.17 to v6.18.\n\
         - If the evidence shows the route, neighbour, interface or sysctl at fault, the sentence \
         names the object, too.\n\
         - A reason that is not listed appears with its name.\n\
         - The column \"source\" cites the sources of Linux. A tag names a version that contains \
         the source.\n",
        count(&reasons, |row| row.reason),
        count(&functions, |row| row.function)
    );
    let _ = write!(text, "\n## Reasons\n\n");
    let rows = reasons.iter().map(|row| {
        let reason = row.reason.expect("a reason");
        let name = match row.function {
            Some(function) => format!("`{reason}` in `{function}`"),
            None => format!("`{reason}`"),
        };
        vec![name, cell(describe_drop(row.kind)), cell(row.source)]
    });
    text += &table(&["reason", "cause", "source"], rows);
    let _ = write!(
        text,
        "\n## Functions\n\nOlder kernels, and some places of newer ones, give no reason. Then the \
         function decides:\n\n"
    );
    let rows = functions.iter().map(|row| {
        let function = row.function.expect("a function");
        vec![
            format!("`{function}`"),
            cell(describe_drop(row.kind)),
            cell(row.source),
        ]
    });
    text += &table(&["function", "cause", "source"], rows);
    text
}
