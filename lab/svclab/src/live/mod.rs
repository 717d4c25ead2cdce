//! Running labs, which exist until a user stops them. The daemon of a lab serves requests on a
//! socket in the user's runtime directory. All access to the lab goes through the daemon, both on
//! this host and in a guest.

mod client;
mod daemon;
mod messages;
mod names;
mod page;
mod pick;
mod probes;
mod programs;
mod socket_dir;

pub(crate) use client::{
    CallError, DaemonConnection, DaemonReceiver, DaemonSender, request_daemon, running_labs,
};
pub(crate) use daemon::{LabDaemon, LabEnd, serve_lab};
pub(crate) use messages::{
    ClientRequest, DaemonReply, Interface, OutputForm, ProbeReport, ProbeRequest, RenderedJourneys,
};
pub(crate) use pick::{PickError, pick_lab};
pub(crate) use programs::guest_programs;
pub(crate) use socket_dir::{SocketDir, SocketDirError};
pub(crate) use svclab_report::ps::{LabInfo, State, document};
