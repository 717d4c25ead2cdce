//! Counts how often ways pass through strips and interfaces, so that each passage has a row or a
//! track of its own.

use std::collections::{BTreeMap, BTreeSet};

use super::route::{Column, Leg, Route};
use super::size::{self, Sizes};
use super::strip::{Strip, Zone};
use super::visible::Visible;
use crate::topology::Topology;
use crate::way::Way;

/// Passages of all ways.
#[derive(Debug)]
pub struct Passages {
    /// Widest group of tracks.
    max_width: i32,
    /// Whether there are texts beside ways.
    has_labels: bool,
    /// Number of rows of each strip.
    rows: BTreeMap<Strip, i32>,
    /// Number of rows of labels above the hosts.
    rows_above: i32,
    /// Number of rows of labels below the pods.
    rows_below: i32,
    /// Number of tracks of each column.
    tracks: BTreeMap<Column, i32>,
    /// First row and track of each leg, by way and leg.
    places: BTreeMap<(usize, usize), Passage>,
    /// Track of a packet that no place received, by way.
    lost: BTreeMap<usize, i32>,
    /// Widths of the strips of nodes, by namespace.
    widths: BTreeMap<String, i32>,
    /// Namespaces in which IPVS selected a destination.
    balanced: BTreeSet<String>,
}

/// Row and track of a leg.
#[derive(Debug, Clone, Copy)]
pub struct Passage {
    pub row: i32,
    pub track: i32,
}

/// Text beside a leg.
pub struct LegLabel {
    /// Row, from that of the leg.
    pub row: i32,
    pub text: String,
    /// Whether the text is the reason for the end; otherwise it is a new address.
    pub is_reason: bool,
}

/// Returns the texts beside a leg. New addresses are beside the way, or below it if the strip is so
/// narrow that it has no space beside the way. Reasons are below.
fn labels(way: &Way, route: &Route, index: usize, strip_width: Option<i32>) -> Vec<LegLabel> {
    let leg = &route.legs[index];
    let mut labels = Vec::new();
    if index == rewriting_leg(route, leg.visit) {
        let rewrites = &way.visits[leg.visit].rewrites;
        let texts: Vec<String> = rewrites.iter().map(ToString::to_string).collect();
        let widths = texts.iter().map(|text| size::label_width(text));
        let needed = widths.max().unwrap_or(0) + 2 * size::ROW;
        let is_narrow = strip_width.is_some_and(|width| needed > width / 2);
        let first = i32::from(is_narrow);
        labels.extend((first..).zip(texts).map(|(row, text)| LegLabel {
            row,
            text,
            is_reason: false,
        }));
    }
    if index + 1 == route.legs.len() {
        let first = rows_of(leg, &labels);
        labels.extend((first..).zip(&way.reason).map(|(row, line)| LegLabel {
            row,
            text: line.clone(),
            is_reason: true,
        }));
    }
    labels
}

/// Returns the number of rows of a leg: at least one in a strip.
fn rows_of(leg: &Leg, labels: &[LegLabel]) -> i32 {
    let rows = labels.last().map_or(0, |last| last.row + 1);
    if leg.strip.is_some() {
        rows.max(1)
    } else {
        rows
    }
}

/// Returns the leg of a visit at which addresses are rewritten: that in the network stack.
pub fn rewriting_leg(route: &Route, visit: usize) -> usize {
    let legs = || {
        route
            .legs
            .iter()
            .enumerate()
            .filter(|(_, leg)| leg.visit == visit)
    };
    let is_stack = |leg: &Leg| {
        leg.strip
            .as_ref()
            .is_some_and(|strip| strip.zone == Zone::Stack)
    };
    let stack = legs().find(|(_, leg)| is_stack(leg));
    stack
        .or_else(|| legs().next())
        .map_or(0, |(index, _)| index)
}

/// Whether a way starts in a place without strips, and continues with this leg. Both are one line.
fn is_after_start(route: &Route, index: usize) -> bool {
    index == 1 && is_start_in(&route.legs[0], &route.legs[1].column)
}

/// Whether the first leg of a way starts in a place without strips, at this column.
fn is_start_in(start: &Leg, column: &Column) -> bool {
    start.strip.is_none() && start.column == *column
}

impl Passages {
    const fn empty(sizes: &Sizes) -> Self {
        Self {
            max_width: sizes.tracks,
            has_labels: sizes.has_labels,
            rows: BTreeMap::new(),
            rows_above: 0,
            rows_below: 0,
            tracks: BTreeMap::new(),
            places: BTreeMap::new(),
            lost: BTreeMap::new(),
            widths: BTreeMap::new(),
            balanced: BTreeSet::new(),
        }
    }

    pub fn new(
        sizes: &Sizes,
        topology: &Topology,
        visible: &Visible<'_>,
        ways: &[Way],
        routes: &[Route],
    ) -> Self {
        let mut passages = Self::empty(sizes);
        for node in &visible.full {
            let width = node.width - 2 * sizes.padding;
            let namespace = node.node.place.namespace.clone();
            passages.widths.insert(namespace, width);
        }
        let is_host = |namespace: &str| {
            let mut hosts = topology.hosts.iter();
            hosts.any(|host| host.namespace == namespace)
        };
        for (number, (way, route)) in ways.iter().zip(routes).enumerate() {
            for (index, leg) in route.legs.iter().enumerate() {
                let count = rows_of(leg, &passages.labels(way, route, index));
                let rows = if let Some(strip) = &leg.strip {
                    passages.rows.entry(strip.clone()).or_default()
                } else if is_host(&way.visits[leg.visit].namespace) {
                    &mut passages.rows_above
                } else {
                    &mut passages.rows_below
                };
                let row = *rows;
                *rows += count;
                let track = if is_after_start(route, index) {
                    passages.passage(number, index - 1).track
                } else {
                    passages.add_track(&leg.column)
                };
                let passage = Passage { row, track };
                passages.places.insert((number, index), passage);
            }
            if let Some(column) = &route.lost_in {
                let start = route.legs.first().filter(|_| route.legs.len() == 1);
                let track = if start.is_some_and(|start| is_start_in(start, column)) {
                    passages.passage(number, 0).track
                } else {
                    passages.add_track(column)
                };
                passages.lost.insert(number, track);
            }
            let balanced = way.visits.iter().filter(|visit| visit.is_balanced);
            passages
                .balanced
                .extend(balanced.map(|visit| visit.namespace.clone()));
        }
        passages
    }

    /// Returns the texts beside a leg.
    pub fn labels(&self, way: &Way, route: &Route, index: usize) -> Vec<LegLabel> {
        if self.has_labels {
            let strip = route.legs[index].strip.as_ref();
            let width = strip.and_then(|strip| self.widths.get(&strip.namespace));
            labels(way, route, index, width.copied())
        } else {
            Vec::new()
        }
    }

    pub fn rows(&self, strip: &Strip) -> i32 {
        self.rows.get(strip).copied().unwrap_or(0)
    }

    pub const fn rows_above(&self) -> i32 {
        self.rows_above
    }

    pub const fn rows_below(&self) -> i32 {
        self.rows_below
    }

    /// Adds a track to a column, and returns its number.
    fn add_track(&mut self, column: &Column) -> i32 {
        let tracks = self.tracks.entry(column.clone()).or_default();
        *tracks += 1;
        *tracks - 1
    }

    pub fn uses(&self, column: &Column) -> bool {
        self.tracks.contains_key(column)
    }

    pub fn is_balanced(&self, namespace: &str) -> bool {
        self.balanced.contains(namespace)
    }

    pub fn passage(&self, way: usize, leg: usize) -> Passage {
        let passage = self.places.get(&(way, leg)).copied();
        passage.unwrap_or(Passage { row: 0, track: 0 })
    }

    /// Returns the width of the tracks through a column.
    pub fn width(&self, column: &Column) -> i32 {
        let count = self.tracks.get(column).copied().unwrap_or(1);
        (count - 1) * self.step(column)
    }

    fn step(&self, column: &Column) -> i32 {
        let count = self.tracks.get(column).copied().unwrap_or(1);
        size::TRACK.min(self.max_width / count.max(1))
    }

    /// Returns the distance of a track from the centre of its column.
    pub fn offset(&self, column: &Column, track: i32) -> i32 {
        track * self.step(column) - self.width(column) / 2
    }

    /// Returns the distances of all tracks from the centre of their column.
    pub fn offsets(&self, column: &Column) -> Vec<i32> {
        let count = self.tracks.get(column).copied().unwrap_or(0);
        (0..count).map(|track| self.offset(column, track)).collect()
    }

    /// Returns the track of a packet that no place received.
    pub fn lost_track(&self, way: usize) -> i32 {
        self.lost.get(&way).copied().unwrap_or(0)
    }
}
