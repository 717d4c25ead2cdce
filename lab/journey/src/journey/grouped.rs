//! Groups values by keys, for indexes whose lookups take the same time for any number of connections.

use std::collections::HashMap;
use std::hash::Hash;

use svclab_model::evidence::AddressPair;

/// Numbers of items by namespace and addresses, in order.
pub(super) type ByAddresses<'i> = HashMap<(&'i str, AddressPair), Vec<usize>>;

/// Groups values by their keys, in order.
pub(super) fn grouped<K: Eq + Hash, V>(pairs: impl Iterator<Item = (K, V)>) -> HashMap<K, Vec<V>> {
    let mut groups: HashMap<K, Vec<V>> = HashMap::new();
    for (key, value) in pairs {
        groups.entry(key).or_default().push(value);
    }
    groups
}
