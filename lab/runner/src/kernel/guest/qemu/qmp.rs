//! Controls QEMU by its QMP protocol: one line of JSON in each direction (QEMU v7.2.0,
//! `docs/interop/qmp-spec.txt`).

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Interest};
use tokio::net::UnixStream;

use crate::kernel::agent::cpu_wait;
use crate::kernel::error::guest::GuestError;

/// Maximum time for QEMU to reply, and to write the state of a machine, without the time in which
/// QEMU waits for a processor.
const MAX_REPLY_TIME: Duration = Duration::from_mins(1);

/// QMP connection to one QEMU.
#[derive(Debug)]
pub(crate) struct Qmp<'a> {
    stream: BufReader<&'a mut UnixStream>,
    /// Process ID of QEMU. `None` once it has ended.
    process: Option<u32>,
}

impl<'a> Qmp<'a> {
    /// Starts the connection.
    pub(crate) async fn new(
        stream: &'a mut UnixStream,
        process: Option<u32>,
    ) -> Result<Self, GuestError> {
        let mut qmp = Self {
            stream: BufReader::new(stream),
            process,
        };
        // QEMU begins with a greeting that needs no reply.
        qmp.execute(
            "negotiate the capabilities of QMP",
            "qmp_capabilities",
            json!({}),
        )
        .await?;
        Ok(qmp)
    }

    /// Stops the machine and writes its state to a descriptor. The state does not include the
    /// memory, which is in a file.
    pub(crate) async fn save(&mut self, to: BorrowedFd<'_>) -> Result<(), GuestError> {
        let operation = "save the guest";
        self.migrate(operation, "migrate", to).await
    }

    /// Resumes a waiting machine from the state that a descriptor contains.
    pub(crate) async fn load(&mut self, from: BorrowedFd<'_>) -> Result<(), GuestError> {
        let operation = "resume the snapshot";
        self.migrate(operation, "migrate-incoming", from).await
    }

    async fn migrate(
        &mut self,
        operation: &str,
        command: &str,
        fd: BorrowedFd<'_>,
    ) -> Result<(), GuestError> {
        let capabilities = json!({"capabilities": [
            {"capability": "x-ignore-shared", "state": true},
            {"capability": "events", "state": true},
        ]});
        self.execute(operation, "migrate-set-capabilities", capabilities)
            .await?;
        let named = json!({"fdname": "state"});
        self.execute_with_fd(operation, "getfd", named, Some(fd))
            .await?;
        self.execute(operation, command, json!({"uri": "fd:state"}))
            .await?;
        loop {
            let message = self.recv(operation).await?;
            if message["event"] != "MIGRATION" {
                continue;
            }
            match message["data"]["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => {
                    return Err(qmp_error(operation, &message["data"].to_string()));
                }
                _ => {}
            }
        }
    }

    async fn execute(
        &mut self,
        operation: &str,
        command: &str,
        arguments: Value,
    ) -> Result<(), GuestError> {
        self.execute_with_fd(operation, command, arguments, None)
            .await
    }

    /// Sends a command, with a descriptor if there is one, and waits for its reply.
    async fn execute_with_fd(
        &mut self,
        operation: &str,
        command: &str,
        arguments: Value,
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<(), GuestError> {
        let line = format!("{}\n", json!({"execute": command, "arguments": arguments}));
        self.send(line.as_bytes(), fd)
            .await
            .map_err(|error| qmp_error(operation, &error.to_string()))?;
        loop {
            let message = self.recv(operation).await?;
            if let Some(error) = message.get("error") {
                let description = error["desc"].as_str().unwrap_or_default();
                return Err(qmp_error(operation, description));
            }
            if message.get("return").is_some() {
                return Ok(());
            }
        }
    }

    async fn send(&self, line: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let stream = self.stream.get_ref();
        let fds: Vec<RawFd> = fd.iter().map(AsRawFd::as_raw_fd).collect();
        let control_messages = [ControlMessage::ScmRights(&fds)];
        let ancillary = if fds.is_empty() {
            &[][..]
        } else {
            &control_messages
        };
        let sent = stream
            .async_io(Interest::WRITABLE, || {
                let slices = [IoSlice::new(line)];
                let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
                Ok(sendmsg::<()>(
                    stream.as_raw_fd(),
                    &slices,
                    ancillary,
                    flags,
                    None,
                )?)
            })
            .await?;
        // A command is far smaller than the buffer of a socket.
        if sent == line.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    async fn recv(&mut self, operation: &str) -> Result<Value, GuestError> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line);
        match cpu_wait::within_cpu_time(self.process, MAX_REPLY_TIME, read).await {
            Some(Ok(0)) => Err(qmp_error(operation, "no reply: QEMU ended")),
            Some(Ok(_)) => serde_json::from_str(&line)
                .map_err(|error| qmp_error(operation, &error.to_string())),
            Some(Err(error)) => Err(qmp_error(operation, &error.to_string())),
            None => Err(qmp_error(
                operation,
                &format!("no reply within {} s", MAX_REPLY_TIME.as_secs()),
            )),
        }
    }
}

fn qmp_error(operation: &str, reply: &str) -> GuestError {
    GuestError::QmpFailed {
        command: operation.to_owned(),
        reply: reply.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use tokio::io::AsyncWriteExt as _;

    /// Saves the state with a QEMU that sends these lines regardless of the commands.
    async fn save_with_replies(lines: &'static [&'static str]) -> Result<(), GuestError> {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        for line in lines {
            far.write_all(line.as_bytes()).await.unwrap();
            far.write_all(b"\n").await.unwrap();
        }
        far.shutdown().await.unwrap();
        let mut qmp = Qmp::new(&mut near, None).await?;
        let file = std::fs::File::open("/dev/null").unwrap();
        qmp.save(file.as_fd()).await
    }

    #[tokio::test]
    async fn qmp_save_returns_result_of_qemu() {
        let hello = r#"{"QMP": {"version": {}}}"#;
        let done = r#"{"return": {}}"#;
        let replies = [
            hello,
            done,
            done,
            done,
            done,
            r#"{"event": "MIGRATION", "data": {"status": "active"}}"#,
            r#"{"event": "STOP"}"#,
            r#"{"event": "MIGRATION", "data": {"status": "completed"}}"#,
        ];
        assert!(
            save_with_replies(Box::leak(Box::new(replies)))
                .await
                .is_ok()
        );
        let refusing = [
            hello,
            done,
            done,
            r#"{"error": {"class": "GenericError", "desc": "no such capability"}}"#,
        ];
        let error = save_with_replies(Box::leak(Box::new(refusing)))
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "QEMU failed to save the guest: no such capability"
        );
        let dying = [hello, done, done, done];
        let error = save_with_replies(Box::leak(Box::new(dying)))
            .await
            .unwrap_err();
        assert!(
            error.to_string().ends_with("no reply: QEMU ended"),
            "{error}"
        );
        let invalid = ["not JSON"];
        assert!(
            save_with_replies(Box::leak(Box::new(invalid)))
                .await
                .is_err()
        );
    }
}
