//! Numbers the routing tables of a dumped node.

use std::collections::BTreeSet;

use svclab_dump::NodeDump;
use svclab_ruleset::route::Route as Dumped;

/// Built-in routing tables (iproute2, `etc/iproute2/rt_tables`).
const BUILT_IN_TABLES: [(&str, u32); 3] = [("local", 255), ("main", 254), ("default", 253)];

/// First number for tables with names that only the node resolves. The actual number of a table has
/// no effect.
const FIRST_NAMED_TABLE: u32 = 1 << 20;

/// Returns the number of a routing table.
pub(super) fn table_number(name: &str, dump: &NodeDump) -> u32 {
    if let Some((_, number)) = BUILT_IN_TABLES.iter().find(|(known, _)| *known == name) {
        return *number;
    }
    if let Ok(number) = name.parse() {
        return number;
    }
    let of_routes = dump.routes.values().flatten().map(Dumped::table);
    let rules = dump.routing_rules.values().flatten();
    let of_rules = rules.filter_map(|rule| rule.attributes.get("lookup"));
    let names: BTreeSet<&str> = of_routes.chain(of_rules).collect();
    let index = names
        .into_iter()
        .take_while(|candidate| *candidate < name)
        .count();
    FIRST_NAMED_TABLE.saturating_add(u32::try_from(index).unwrap_or(u32::MAX))
}
