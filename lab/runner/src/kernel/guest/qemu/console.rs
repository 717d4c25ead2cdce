//! Collects the output of a guest's console and of QEMU, and determines the cause of a guest's end.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Maximum output that is kept, in bytes.
const MAX_KEPT: usize = 32 << 10;

/// Maximum number of lines in messages.
const MAX_LINES: usize = 8;

/// Maximum number of lines in messages about a fault of the kernel, with its call trace.
const MAX_FAULT_LINES: usize = 60;

/// Beginnings of the first line of a fault (Linux v6.12, `arch/x86/mm/fault.c`,
/// `arch/x86/kernel/traps.c` and `dumpstack.c`).
const FAULTS: [&str; 5] = [
    "BUG: ",
    "kernel BUG at ",
    "Oops: ",
    "general protection fault",
    "divide error: ",
];

/// Words of the lines between a fault and its call trace that contain registers and modules (Linux
/// v6.12, `__show_regs` in `arch/x86/kernel/process_64.c`, `show_opcodes` in `dumpstack.c`).
const REGISTERS: [&str; 11] = [
    "RSP: ",
    "RAX: ",
    "RDX: ",
    "RBP: ",
    "R10: ",
    "R13: ",
    "FS: ",
    "CS: ",
    "CR2: ",
    "Code: ",
    "Modules linked in: ",
];

/// Beginning of a kernel's panic message (Linux v6.12, `kernel/panic.c`).
const PANIC: &str = "Kernel panic - not syncing: ";

/// End of an output stream, also while the stream is written.
#[derive(Debug, Clone, Default)]
pub(super) struct OutputTail(Arc<Mutex<Vec<u8>>>);

impl OutputTail {
    /// Reads a stream until its end.
    pub(super) async fn follow(&self, mut from: impl AsyncRead + Unpin) {
        let mut chunk = [0; 1024];
        while let Ok(length @ 1..) = from.read(&mut chunk).await {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(&chunk[..length]);
            let over = kept.len().saturating_sub(MAX_KEPT);
            kept.drain(..over);
        }
    }

    /// Returns the last lines of the output, or the last lines up to a panic message.
    pub(super) fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        clean(&String::from_utf8_lossy(&kept))
    }
}

/// Returns the last lines without control characters, which firmware prints to draw on its screen.
fn clean(text: &str) -> String {
    let text = anstream::adapter::strip_str(text).to_string();
    let mut lines: Vec<String> = text
        .lines()
        .map(|line| {
            line.trim_end()
                .replace(|letter: char| letter.is_control(), "")
        })
        .filter(|line| !line.is_empty() && !line.starts_with("SeaBIOS"))
        .collect();
    let mut limit = MAX_LINES;
    if let Some(panic) = lines.iter().position(|line| line.contains(PANIC)) {
        // Registers follow the panic message.
        lines.truncate(panic + 1);
        let contains_any = |line: &str, words: &[&str]| words.iter().any(|w| line.contains(w));
        if let Some(fault) = lines.iter().position(|line| contains_any(line, &FAULTS)) {
            lines.drain(..fault);
            lines.retain(|line| !contains_any(line, &REGISTERS));
            // The call trace that is nearest to the fault is the first one.
            let last = lines.split_off(lines.len() - 1);
            lines.truncate(MAX_FAULT_LINES - 1);
            lines.extend(last);
            limit = MAX_FAULT_LINES;
        }
    }
    lines[lines.len().saturating_sub(limit)..].join("\n")
}

/// Describes the cause of a kernel's end by its last messages. `None` if they report none.
pub(super) fn describe_end(output: &str) -> Option<String> {
    // Linux v6.12, `mm/oom_kill.c`.
    let memory =
        output.contains("Out of memory") || output.contains("System is deadlocked on memory");
    let panic = output
        .lines()
        .rev()
        .find_map(|line| Some(line.split_once(PANIC)?.1.trim().to_owned()));
    match (memory, panic) {
        (true, _) => Some("the guest ran out of memory".to_owned()),
        (false, Some(why)) => Some(format!("the guest's kernel panicked: {why}")),
        (false, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tail_long_output_keeps_the_end() {
        let tail = OutputTail::default();
        let long = format!("{}\r\nthe last line\r\n", "x".repeat(3 * MAX_KEPT));
        tail.follow(long.as_bytes()).await;
        let kept = tail.0.lock().unwrap().len();
        assert_eq!(kept, MAX_KEPT);
        let text = tail.text();
        assert!(
            text.len() <= MAX_KEPT && text.ends_with("the last line"),
            "{text}"
        );
    }

    #[test]
    fn clean_drops_control_characters_and_registers() {
        assert_eq!(
            clean("\x1bc\x1b[2J\x1b[1;1HSeaBIOS (1)\r\n\r\n[ 1.0] x\r\n"),
            "[ 1.0] x"
        );
        let panic = format!("{}a\n{PANIC}no init\nCPU: 0\nRIP\n", "before\n".repeat(20));
        let lines = clean(&panic);
        assert!(
            lines.ends_with(&format!("before\na\n{PANIC}no init")),
            "{lines}"
        );
        assert_eq!(lines.lines().count(), MAX_LINES);
    }

    /// The order of the lines is that of Linux v6.12, `__die` and `oops_end`
    /// (`arch/x86/kernel/dumpstack.c`).
    #[test]
    fn clean_keeps_the_call_trace_of_a_fault() {
        let before = "[ 8.0] before\n".repeat(20);
        let calls: Vec<String> = (0..40)
            .map(|at| format!("[ 8.1]  call_{at}+0x1/0x2\n"))
            .collect();
        let trace = calls.concat();
        let fault = format!(
            "[ 8.1] BUG: kernel NULL pointer dereference, address: 0000000000000008\n\
             [ 8.1] #PF: supervisor read access in kernel mode\n\
             [ 8.1] Modules linked in: vxlan\n\
             [ 8.1] RIP: 0010:first+0x1/0x2\n\
             [ 8.1] Code: 00 00\n\
             [ 8.1] RAX: 0000000000000000 RBX: 0000000000000001 RCX: 0000000000000000\n\
             [ 8.1] Call Trace:\n{trace}\
             [ 8.1] ---[ end trace 0000000000000000 ]---\n\
             [ 8.1] RIP: 0010:first+0x1/0x2\n\
             [ 8.1] R10: 0 R11: 0 R12: 0\n"
        );
        let lines = clean(&format!(
            "{before}{fault}[ 8.2] {PANIC}Fatal exception\nRIP\n"
        ));
        assert!(lines.starts_with("[ 8.1] BUG: "), "{lines}");
        assert!(lines.contains("call_39+"), "{lines}");
        assert!(!lines.contains("RAX") && !lines.contains("R10"), "{lines}");
        assert!(
            lines.ends_with(&format!("{PANIC}Fatal exception")),
            "{lines}"
        );

        let twice = clean(&format!("{fault}{fault}{PANIC}Fatal exception\n"));
        assert_eq!(twice.lines().count(), MAX_FAULT_LINES);
        assert!(twice.ends_with("Fatal exception"), "{twice}");
    }

    #[test]
    fn describe_end_panic_or_oom_is_named() {
        let panic = "[    2.1] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100\n[    2.1] ---[ end Kernel panic ]---";
        assert_eq!(
            describe_end(panic).as_deref(),
            Some("the guest's kernel panicked: Attempted to kill init! exitcode=0x00000100")
        );
        assert_eq!(
            describe_end("Out of memory: Killed process 90 (iptables)").as_deref(),
            Some("the guest ran out of memory")
        );
        assert_eq!(describe_end("reboot: Power down"), None);
    }
}
