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

pub use call::{CallError, Hearing, Line, Saying, call, standing};
pub use holder::{Ending, Holder, hold};
pub use names::{capturable, namespace};
pub use pick::{PickError, pick};
pub use place::{Berth, Directory, PlaceError};
pub use svclab_report::ps::{About, Document, SCHEMA, State, document};
pub use talk::{Ask, Explained, Form, Interface, Probed, Told, Wish};
