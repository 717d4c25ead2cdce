//! Places marks on a line by their times: time is linear where something happens, and idle time is
//! cut short.

/// Longest time without an event that is drawn to scale, in microseconds.
const IDLE_US: u64 = 120_000;

/// Width of a cut in pixels.
pub(super) const CUT: i32 = 64;

/// Width of all linear parts together in pixels, before marks of one row are moved apart.
const WIDTH: u64 = 760;

/// Minimum distance between two marks of one row in pixels.
const DISTANCE: i32 = 10;

/// Mark to place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// Microseconds since the start.
    pub at: u64,
    /// Index of the row.
    pub row: usize,
}

/// Period without longer idle time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Period {
    /// First and last time in microseconds.
    pub from: u64,
    pub until: u64,
    /// Position of the first and the last mark.
    pub left: i32,
    pub right: i32,
    /// Number of marks.
    pub marks: usize,
}

/// Placed marks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Placed {
    /// Position of each mark, in the order of the input.
    pub positions: Vec<i32>,
    /// Periods in order.
    pub periods: Vec<Period>,
}

/// Places marks. A later mark is never left of an earlier one.
pub(super) fn place(marks: &[Mark]) -> Placed {
    let mut order: Vec<usize> = (0..marks.len()).collect();
    order.sort_by_key(|index| marks[*index].at);
    let rows = marks.iter().map(|mark| mark.row + 1).max().unwrap_or(0);
    let busy = busy_time(&order, marks).max(1);
    let mut last_of_row: Vec<Option<i32>> = vec![None; rows];
    let mut placed = Placed {
        positions: vec![0; marks.len()],
        periods: Vec::new(),
    };
    let mut x = 0;
    let mut before: Option<u64> = None;
    for index in order {
        let Mark { at, row } = marks[index];
        let idle = before.map(|before| at - before);
        if idle.is_some_and(|idle| idle > IDLE_US) {
            x += CUT;
        } else {
            let linear = idle.unwrap_or(0) * WIDTH / busy;
            x += i32::try_from(linear).unwrap_or(i32::MAX);
        }
        if let Some(last) = last_of_row[row] {
            x = x.max(last + DISTANCE);
        }
        last_of_row[row] = Some(x);
        placed.positions[index] = x;
        match placed.periods.last_mut() {
            Some(period) if idle.is_some_and(|idle| idle <= IDLE_US) => {
                period.until = at;
                period.right = x;
                period.marks += 1;
            }
            _ => placed.periods.push(Period {
                from: at,
                until: at,
                left: x,
                right: x,
                marks: 1,
            }),
        }
        before = Some(at);
    }
    placed
}

/// Returns the sum of the times between marks that are drawn to scale, in microseconds.
fn busy_time(order: &[usize], marks: &[Mark]) -> u64 {
    let times = order.iter().map(|index| marks[*index].at);
    let idle = times.clone().zip(times.skip(1));
    let idle = idle.map(|(before, after)| after - before);
    idle.filter(|idle| *idle <= IDLE_US).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(times: &[(u64, usize)]) -> Vec<Mark> {
        let times = times.iter();
        times.map(|(at, row)| Mark { at: *at, row: *row }).collect()
    }

    #[test]
    fn place_cuts_idle_time() {
        let placed = place(&marks(&[(0, 0), (1000, 0), (1_001_000, 0), (1_002_000, 1)]));
        assert_eq!(placed.positions, [0, 380, 444, 824]);
        let periods: Vec<_> = placed
            .periods
            .iter()
            .map(|own| (own.from, own.until, own.marks))
            .collect();
        assert_eq!(periods, [(0, 1000, 2), (1_001_000, 1_002_000, 2)]);
    }

    #[test]
    fn place_keeps_marks_of_row_apart_and_order() {
        let times: Vec<(u64, usize)> = (0..100).map(|number| (number / 10, 0)).collect();
        let placed = place(&marks(&times));
        assert!(
            placed
                .positions
                .windows(2)
                .all(|pair| pair[1] - pair[0] >= DISTANCE)
        );
        // Marks of two rows at one time share a position.
        let placed = place(&marks(&[(5, 0), (0, 1), (5, 1)]));
        assert_eq!(placed.positions, [760, 0, 760]);
    }

    #[test]
    fn place_nothing_has_no_period() {
        assert_eq!(place(&[]), Placed::default());
        let one = place(&marks(&[(7, 2)]));
        assert_eq!(
            (one.positions.as_slice(), one.periods.len()),
            ([0].as_slice(), 1)
        );
    }
}
