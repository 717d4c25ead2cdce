//! Running labs, which exist until a user stops them. The daemon of a lab serves requests on a
//! socket in the user's runtime directory. All access to the lab goes through the daemon, both on
//! this host and in a guest.

mod call;
mod explained;
mod holder;
mod names;
mod pick;
mod place;
pub mod programs;
mod talk;

pub use call::{
    CallError, DaemonConnection, DaemonReceiver, DaemonSender, request_daemon, standing,
};
pub use holder::{LabDaemon, LabEnd, serve_lab};
pub use names::{namespace, resolve_capture};
pub use pick::{PickError, pick_lab};
pub use place::{SocketDir, SocketDirError, SocketLease};
pub use svclab_report::ps::{Document, LabInfo, SCHEMA, State, document};
pub use talk::{
    ClientRequest, DaemonReply, Interface, OutputForm, ProbeReport, ProbeRequest, RenderedJourneys,
};
