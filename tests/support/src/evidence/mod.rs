//! Plans whose evidence is known, and checks of evidence, for this host and for guests.

pub mod accounting;
pub mod dropped;
pub mod traced;
