//! Reads the packets that are queued in the kernel for a processor, and the packets dropped because
//! the queue was full.
//!
//! Every packet over a veth pair or loopback passes the queue of a processor (Linux v6.12,
//! `net/core/dev.c`, `enqueue_to_backlog` and `process_backlog`). On a busy host the packet waits
//! in the queue. The kernel drops a packet when the queue is full.

use super::kernel_file;

/// File with one line per processor (Linux v6.12, `net/core/net-procfs.c`, `softnet_seq_show`).
const FILE: &str = "/proc/net/softnet_stat";

/// Columns: dropped packets, queued packets (since Linux 5.10), and processor number.
const DROPPED: usize = 1;
const WAITING: usize = 11;
const PROCESSOR: usize = 12;

/// Queues of all processors at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Queues {
    /// Number of packets dropped since the kernel started.
    pub dropped: u64,
    /// Processors with queued packets.
    pub busy: Vec<u32>,
}

impl Queues {
    /// Reads the queues. If the kernel does not report them, they count as empty.
    pub fn read() -> Self {
        Self::parse(&kernel_file::read(FILE))
    }

    fn parse(text: &str) -> Self {
        let mut queues = Self::default();
        for line in text.lines() {
            let columns: Vec<u32> = line
                .split_whitespace()
                .map(|column| u32::from_str_radix(column, 16).unwrap_or(0))
                .collect();
            queues.dropped += columns.get(DROPPED).copied().map_or(0, u64::from);
            if let (Some(1..), Some(processor)) = (columns.get(WAITING), columns.get(PROCESSOR)) {
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
    fn queues_of_two_processors_are_read() {
        let text = "\
00001cf8 00000002 00000000 0 0 0 0 0 0 00000000 00000000 00000000 00000000 00000000 00000000
0000000a 00000001 00000000 0 0 0 0 0 0 00000000 00000000 0000001f 00000003 0000001f 00000000
";
        let wanted = Queues {
            dropped: 3,
            busy: vec![3],
        };
        assert_eq!(Queues::parse(text), wanted);
    }

    #[test]
    fn queues_kernel_without_lengths_are_empty() {
        let wanted = Queues {
            dropped: 1,
            busy: Vec::new(),
        };
        assert_eq!(
            Queues::parse("0000000a 00000001 0 0 0 0 0 0 0 0 0\n"),
            wanted
        );
        assert_eq!(Queues::parse(""), Queues::default());
    }

    #[test]
    fn queues_of_this_machine_have_a_line_for_each_processor() {
        assert!(kernel_file::read(FILE).lines().count() > 0);
    }
}
