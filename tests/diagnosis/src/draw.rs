//! Choices that depend only on a seed.

use crate::fault::{Change, Culprit, Fault, Shown};
use crate::state::{NodeState, State};

/// Random numbers of a seed: splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
/// number generators", 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Starts the numbers of a kind of fault. A redraw has other numbers.
    pub(crate) fn new(seed: u64, kind: &str, redraw: u64) -> Self {
        // FNV-1a.
        let name = kind.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(name ^ seed.wrapping_mul(0x9e37_79b9) ^ (redraw << 48))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Returns a number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % limit).unwrap_or(0)
    }
}

/// Healthy lab and the random numbers that choose an object in it.
#[derive(Debug)]
pub(crate) struct Draw<'a> {
    pub(crate) state: &'a State,
    pub(crate) random: Random,
}

/// Drawn fault, or the reason why this lab has none of the kind.
pub(crate) type Drawn = Result<Fault, String>;

impl<'a> Draw<'a> {
    /// Chooses one of several things.
    pub(crate) fn pick<T>(&mut self, from: Vec<T>, name: &str) -> Result<T, String> {
        if from.is_empty() {
            return Err(format!("the healthy lab has no {name}"));
        }
        let index = self.random.below(from.len());
        from.into_iter().nth(index).ok_or_else(|| name.to_owned())
    }

    /// Chooses one of several texts.
    pub(crate) fn pick_text(&mut self, from: &[&'static str]) -> &'static str {
        from.get(self.random.below(from.len()))
            .copied()
            .unwrap_or_default()
    }

    pub(crate) fn node(&mut self) -> Result<&'a NodeState, String> {
        let state = self.state;
        self.pick(state.nodes.iter().collect(), "node")
    }

    /// Returns the first node, on which most callers of the lab are.
    pub(crate) fn client_node(&self) -> Result<&'a NodeState, String> {
        self.state
            .nodes
            .first()
            .ok_or_else(|| "the healthy lab has no node".to_owned())
    }

    /// Chooses the address of an endpoint of a service, without its port.
    pub(crate) fn endpoint(&mut self, node: &NodeState) -> Result<String, String> {
        let endpoint = self.pick(node.endpoints(), "endpoint")?;
        Ok(endpoint.split(':').next().unwrap_or(&endpoint).to_owned())
    }
}

/// Makes a fault of commands on a node, which also are its summary.
pub(crate) fn commands(node: &str, commands: &[String], culprits: Vec<Culprit>) -> Fault {
    Fault {
        summary: format!("{node}: {}", commands.join("; ")),
        change: Change::Commands {
            node: node.to_owned(),
            commands: commands.to_vec(),
        },
        culprits,
        shown: Shown::InDump,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_equal_seeds_give_equal_numbers() {
        let numbers = |seed, kind, redraw| {
            let mut random = Random::new(seed, kind, redraw);
            [random.below(1000), random.below(1000), random.below(1000)]
        };
        assert_eq!(
            numbers(1, "route-missing", 0),
            numbers(1, "route-missing", 0)
        );
        assert_ne!(
            numbers(1, "route-missing", 0),
            numbers(2, "route-missing", 0)
        );
        assert_ne!(numbers(1, "route-missing", 0), numbers(1, "link-down", 0));
        assert_ne!(
            numbers(1, "route-missing", 0),
            numbers(1, "route-missing", 1)
        );
    }
}
