//! Running labs, which exist until a user stops them. The daemon of a lab serves requests on a
//! socket in the user's runtime directory. All access to the lab goes through the daemon, both on
//! this host and in a guest.

mod client;
mod daemon;
mod explanation;
mod messages;
mod names;
mod pick;
pub mod programs;
mod socket_dir;

pub use client::{
    CallError, DaemonConnection, DaemonReceiver, DaemonSender, request_daemon, running_labs,
};
pub use daemon::{LabDaemon, LabEnd, serve_lab};
pub use messages::{
    ClientRequest, DaemonReply, Interface, OutputForm, ProbeReport, ProbeRequest, RenderedJourneys,
};
pub use names::{find_namespace, resolve_capture};
pub use pick::{PickError, pick_lab};
pub use socket_dir::{SocketDir, SocketDirError, SocketLease};
pub use svclab_report::ps::{Document, LabInfo, SCHEMA, State, document};
