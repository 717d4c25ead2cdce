//! Library of faults. A kind draws a concrete fault for a healthy lab: the change, and the objects
//! that a correct answer names.

mod components;
mod fields;
mod foreign;
mod ipvs;
mod kernel;
mod links;
mod nft;
mod routes;
mod rules;

use crate::draw::{Draw, Drawn};
use crate::mode::Mode;

/// Kind of faults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Area of the node's state, such as `routes`.
    pub(crate) area: &'static str,
    /// Modes in which the kind exists.
    pub(crate) modes: &'static [Mode],
    /// Whether a real kube-proxy writes the rules.
    pub(crate) real_proxy: bool,
    pub(crate) draw: fn(&mut Draw<'_>) -> Drawn,
}

impl Kind {
    /// Whether kube-proxy wrote the object at fault.
    pub(crate) fn is_written_by_proxy(&self) -> bool {
        [rules::AREA, nft::AREA, ipvs::AREA].contains(&self.area)
    }
}

const IPTABLES: &[Mode] = &[Mode::Iptables];
const NFTABLES: &[Mode] = &[Mode::Nftables];
const IPVS: &[Mode] = &[Mode::Ipvs];
/// Modes with rules of iptables.
const IPTABLES_OR_IPVS: &[Mode] = &[Mode::Iptables, Mode::Ipvs];

const fn kind(
    name: &'static str,
    area: &'static str,
    modes: &'static [Mode],
    draw: fn(&mut Draw<'_>) -> Drawn,
) -> Kind {
    Kind {
        name,
        area,
        modes,
        real_proxy: false,
        draw,
    }
}

/// Returns all kinds of faults, by area.
pub(crate) fn library() -> Vec<Kind> {
    let areas: [&[Kind]; 9] = [
        &rules::KINDS,
        &foreign::KINDS,
        &nft::KINDS,
        &ipvs::KINDS,
        &routes::KINDS,
        &links::KINDS,
        &kernel::KINDS,
        &components::KINDS,
        &fields::KINDS,
    ];
    areas.concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn library_kinds_have_different_names_in_every_mode() {
        let kinds = library();
        let names: BTreeSet<_> = kinds.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), kinds.len());
        for mode in Mode::ALL {
            let count = kinds
                .iter()
                .filter(|kind| kind.modes.contains(mode))
                .count();
            assert!(count >= 60, "{mode:?} has {count} kinds");
        }
    }
}
