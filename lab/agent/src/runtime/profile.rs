//! Measures the cost of the phases and programs of a lab. Does nothing until it is enabled.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

use svclab_model::protocol::profile::{Cost, Phase, Profile};

thread_local! {
    static PROFILE: RefCell<Option<Profile>> = const { RefCell::new(None) };
}

/// Begins a profile, or discards the current one.
pub(crate) fn enable(is_enabled: bool) {
    PROFILE.set(is_enabled.then(Profile::default));
}

/// Returns the costs measured so far, and measures from zero.
pub(crate) fn take() -> Profile {
    PROFILE.with_borrow_mut(|profile| {
        let measured = profile.take();
        *profile = measured.is_some().then(Profile::default);
        measured.unwrap_or_default()
    })
}

/// Measures a phase until the returned value is dropped.
#[must_use = "the phase ends when the span is dropped"]
pub(crate) fn span(phase: Phase) -> Option<Span> {
    is_enabled().then(|| Span(phase, Start::now()))
}

/// Measures phases that follow each other.
#[derive(Debug)]
pub(crate) struct Phases(Option<Span>);

impl Phases {
    /// Begins the first phase.
    pub(crate) fn begin(phase: Phase) -> Self {
        Self(span(phase))
    }

    /// Ends the current phase and begins the next.
    pub(crate) fn enter(&mut self, phase: Phase) {
        self.0 = None;
        self.0 = span(phase);
    }
}

fn is_enabled() -> bool {
    PROFILE.with_borrow(Option::is_some)
}

/// Phase that is being measured.
#[derive(Debug)]
pub(crate) struct Span(Phase, Start);

impl Drop for Span {
    fn drop(&mut self) {
        self.1.record(self.0);
    }
}

/// Start of a measurement: time, and processor time of this process and its ended children.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    time: Instant,
    used: [Duration; 2],
}

impl Start {
    pub(crate) fn now() -> Self {
        let who = [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN];
        Self {
            time: Instant::now(),
            used: used(&who),
        }
    }

    /// Adds the cost since the start to a phase, if the profile is enabled.
    pub(crate) fn record(self, phase: Phase) {
        let now = Self::now();
        let [user, kernel] = [0, 1].map(|at| now.used[at].saturating_sub(self.used[at]));
        PROFILE.with_borrow_mut(|profile| {
            if let Some(profile) = profile {
                let wall = now.time - self.time;
                add(profile.phases.entry(phase).or_default(), wall, user, kernel);
            }
        });
    }
}

/// Program that is being measured.
#[derive(Debug)]
pub(crate) struct ProgramSpan {
    program: String,
    started: Instant,
}

impl ProgramSpan {
    /// Measures the program at a path from now on. `None` unless the profile is enabled.
    pub(crate) fn start(path: &std::path::Path) -> Option<Self> {
        is_enabled().then(|| Self {
            program: path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            started: Instant::now(),
        })
    }

    /// Records the program's end. `collect` collects its exit status, which adds its processor time
    /// to that of the ended children.
    pub(crate) fn record<T>(span: Option<&Self>, collect: impl FnOnce() -> T) -> T {
        let Some(span) = span else {
            return collect();
        };
        let before = used(&[UsageWho::RUSAGE_CHILDREN]);
        let collected = collect();
        let after = used(&[UsageWho::RUSAGE_CHILDREN]);
        let [user, kernel] = [0, 1].map(|at| after[at].saturating_sub(before[at]));
        PROFILE.with_borrow_mut(|profile| {
            if let Some(profile) = profile {
                let cost = profile.programs.entry(span.program.clone()).or_default();
                add(cost, span.started.elapsed(), user, kernel);
            }
        });
        collected
    }
}

fn add(cost: &mut Cost, wall: Duration, user: Duration, kernel: Duration) {
    cost.count += 1;
    cost.wall += wall;
    cost.user += user;
    cost.kernel += kernel;
}

/// Returns the processor time outside the kernel and in the kernel.
fn used(who: &[UsageWho]) -> [Duration; 2] {
    let mut sum = [Duration::ZERO; 2];
    for usage in who.iter().filter_map(|who| getrusage(*who).ok()) {
        for (sum, time) in sum.iter_mut().zip([usage.user_time(), usage.system_time()]) {
            *sum += Duration::from_micros(time.num_microseconds().unsigned_abs());
        }
    }
    sum
}
