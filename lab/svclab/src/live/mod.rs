//! Labs that stand until somebody takes them away: who holds one answers on a
//! socket in the user's runtime directory, and what is done in the lab goes
//! through that one, whether it stands on this host or in a guest.

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
