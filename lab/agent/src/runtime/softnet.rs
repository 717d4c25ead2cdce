//! Reads the packets that are queued in the kernel for a processor, and the packets dropped because
//! the queue was full.
//!
//! Every packet over a veth pair or loopback passes the queue of a processor (Linux v6.12,
//! `net/core/dev.c`, `enqueue_to_backlog` and `process_backlog`). On a busy host the packet waits
//! in the queue. The kernel drops a packet when the queue is full.

use crate::runtime::kernel_file;

/// File with one line per processor (Linux v6.12, `net/core/net-procfs.c`, `softnet_seq_show`).
const STAT_FILE: &str = "/proc/net/softnet_stat";

/// Columns: dropped packets, queued packets (since Linux 5.10), and processor number.
const DROPPED_COLUMN: usize = 1;
const QUEUED_COLUMN: usize = 11;
const PROCESSOR_COLUMN: usize = 12;

/// Queues of all processors at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct BacklogQueues {
    /// Number of packets dropped since the kernel started.
    pub dropped: u64,
    /// Processors with queued packets.
    pub busy: Vec<u32>,
}

impl BacklogQueues {
    /// Reads the queues. If the kernel does not report them, they count as empty.
    pub(crate) fn read() -> Self {
        Self::parse(&kernel_file::read(STAT_FILE))
    }

    fn parse(text: &str) -> Self {
        let mut queues = Self::default();
        for line in text.lines() {
            let columns: Vec<u32> = line
                .split_whitespace()
                .map(|column| u32::from_str_radix(column, 16).unwrap_or(0))
                .collect();
            queues.dropped += columns.get(DROPPED_COLUMN).copied().map_or(0, u64::from);
            if let (Some(1..), Some(processor)) =
                (columns.get(QUEUED_COLUMN), columns.get(PROCESSOR_COLUMN))
            {
                queues.busy.push(*processor);
            }
        }
        queues
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_two_processors_are_parsed() {
        let text = "\
00001cf8 00000002 00000000 0 0 0 0 0 0 00000000 00000000 00000000 00000000 00000000 00000000
0000000a 00000001 00000000 0 0 0 0 0 0 00000000 00000000 0000001f 00000003 0000001f 00000000
";
        let expected = BacklogQueues {
            dropped: 3,
            busy: vec![3],
        };
        assert_eq!(BacklogQueues::parse(text), expected);
    }

    #[test]
    fn queues_kernel_without_lengths_are_empty() {
        let expected = BacklogQueues {
            dropped: 1,
            busy: Vec::new(),
        };
        assert_eq!(
            BacklogQueues::parse("0000000a 00000001 0 0 0 0 0 0 0 0 0\n"),
            expected
        );
        assert_eq!(BacklogQueues::parse(""), BacklogQueues::default());
    }

    #[test]
    fn host_queue_file_is_not_empty() {
        assert!(kernel_file::read(STAT_FILE).lines().count() > 0);
    }
}
