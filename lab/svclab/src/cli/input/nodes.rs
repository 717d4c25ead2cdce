//! Assigns dumps to the nodes of a cluster.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::dumps::DumpArgument;
use crate::cli::error::CliError;
use svclab_planner::replay::find_node_of_dump;
use svclab_runner::run::dumps::DumpOverride;
use svclab_scenario::Case;
use svclab_scenario::objects::Objects;

/// Names of nodes with their internal addresses.
pub(crate) type NodeAddresses = Vec<(String, Vec<IpAddr>)>;

/// Assigns the dumps to the nodes of a case.
pub(crate) fn dumps_by_node(
    case: &Case,
    given: Vec<DumpArgument>,
) -> Result<BTreeMap<String, DumpOverride>, CliError> {
    let nodes = node_addresses(&case.objects);
    let mut dumps = BTreeMap::new();
    for argument in given {
        let node = node_name(&argument, &nodes)?;
        if dumps.contains_key(&node) {
            return Err(duplicate_dump(&node));
        }
        dumps.insert(node, argument.dump);
    }
    Ok(dumps)
}

/// Returns the error for two dumps of the same node.
pub(crate) fn duplicate_dump(node: &str) -> CliError {
    CliError::refused(
        format!("two dumps are for node `{node}`"),
        "give one dump per node",
    )
}

/// Returns the nodes of the objects with their internal addresses.
pub(crate) fn node_addresses(objects: &Objects) -> NodeAddresses {
    let nodes = objects.nodes.iter().map(|node| {
        let status = node.value.status.as_ref();
        let node_addresses = status.and_then(|status| status.addresses.as_ref());
        let internal = node_addresses
            .into_iter()
            .flatten()
            .filter(|address| address.type_ == "InternalIP")
            .filter_map(|address| address.address.parse().ok());
        let name = node.value.metadata.name.clone().unwrap_or_default();
        (name, internal.collect())
    });
    nodes.collect()
}

/// Returns the name of the node that a dump belongs to.
pub(crate) fn node_name(
    given: &DumpArgument,
    nodes: &[(String, Vec<IpAddr>)],
) -> Result<String, CliError> {
    let is_node = |name: &&String| nodes.iter().any(|(known, _)| known == *name);
    let path = given.path.display();
    let names: Vec<&str> = nodes.iter().map(|(name, _)| name.as_str()).collect();
    match &given.node {
        Some(name) if nodes.is_empty() || is_node(&name) => return Ok(name.clone()),
        Some(name) => {
            return Err(CliError::refused(
                format!("node `{name}` is not among the objects"),
                format!("use one of: {}", names.join(", ")),
            ));
        }
        None => {}
    }
    if let Some(node) = find_node_of_dump(&given.dump.dump, nodes) {
        return Ok(node.to_owned());
    }
    match names.as_slice() {
        [] => {
            let stem = given.path.file_name().unwrap_or_default().to_string_lossy();
            Ok(stem.split('.').next().unwrap_or_default().to_lowercase())
        }
        [only] => Ok((*only).to_owned()),
        _ => Err(CliError::refused(
            format!("no address in {path} belongs to a node of the objects"),
            format!("name the node: {}={path}", names.join("|")),
        )),
    }
}
