//! Implements `svclab schema`.

use super::args::Described;
use super::exit::Exit;
use super::output::print_json;
use svclab_report as report;
use svclab_scenario as scenario;

/// Prints the schema of a format.
pub fn schema(of: Described) -> Exit {
    let schema = match of {
        Described::Lab => scenario::schema::lab(),
        Described::Results => report::schema::results(),
        Described::Claims => report::schema::claims(),
        Described::Doctor => report::schema::doctor(),
        Described::Diff => report::schema::diff(),
        Described::Journeys => report::schema::journeys(),
        Described::Evidence => report::schema::evidence(),
        Described::Ps => report::schema::ps(),
        Described::Bisection => report::schema::bisection(),
        Described::Verification => report::schema::verification(),
        Described::Replay => report::schema::replayed(),
        Described::Why => report::schema::why(),
    };
    print_json(&schema)
}
