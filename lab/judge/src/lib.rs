//! Compares evidence with expectations: whether a case meets its expectations, and which claims of
//! a write-up the case confirms.

mod address_book;
mod check;
mod conclusion;
mod deviation;
#[cfg(test)]
mod fixture;
mod judge;
mod paths;
mod rule_match;
mod state;

pub use address_book::AddressBook;
pub use check::{Check, LinkContent, SetContent};
pub use conclusion::{
    Cause, DROP_TABLE, DropKind, DropRow, Explainer, Fact, Fault, IcmpMeaning, InterfaceName,
    KeptSourceReason, MasqueradeOption, MissingEndpointReason, NamedAddress, NoEndpointReason,
    NodePortGap, Rejection, ReplyGap, RuleReference, ServicePolicy, TunnelEnds, UntranslatedReason,
    drop_row, find_reply, find_request,
};
pub use deviation::{Deviation, InterfaceProperty};
pub use judge::claim::{ClaimDifference, ClaimOutcome, ClaimVerdict};
pub use judge::doubt::Doubt;
pub use judge::probe::{Observed, ProbeOutcome, is_name_suffix, summarize};
pub use judge::stage::{StageOutcome, StepOutcome};
pub use judge::traffic_shift::{TrafficShift, render_duration};
pub use judge::{Judge, JudgedCase, JudgedStage, Judgement};
pub use paths::{called_service, possible_endpoints};
pub use state::route_lookup::{RouteDecision, RouteLookup};
