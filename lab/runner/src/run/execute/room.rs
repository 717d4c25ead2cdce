//! Gives each lab its part of the machine: a place, memory, a processor, or the machine for itself.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

/// Time after which probes that still run are taken to wait for a timeout, which needs no processor.
const WAITING_AFTER: Duration = Duration::from_millis(400);

/// Permits that all labs of a run share. A lab that needs the machine for itself holds all of them.
const MACHINE_PERMITS: u32 = 1 << 20;

/// The machine, which all labs of a run share.
#[derive(Clone)]
pub(super) struct Machine(Arc<Semaphore>);

impl Default for Machine {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MACHINE_PERMITS as usize)))
    }
}

/// Place and memory of a lab in a pool.
pub struct Room {
    /// Permit for a lab that needs a processor.
    active: Mutex<Option<OwnedSemaphorePermit>>,
    machine: Machine,
    use_of_machine: Mutex<UseOfMachine>,
    _permits: [OwnedSemaphorePermit; 2],
}

/// Part of the machine that a lab uses.
#[derive(Default)]
struct UseOfMachine {
    permits: Option<OwnedSemaphorePermit>,
    /// When the lab began to wait for the machine. `None` if it does not wait.
    waits_since: Option<Instant>,
    /// Time of all earlier waits.
    waited: Duration,
}

impl Room {
    /// Returns the room of a lab with permits for its place and its memory, and for a processor.
    pub(super) fn new(
        permits: [OwnedSemaphorePermit; 2],
        active: OwnedSemaphorePermit,
        machine: &Machine,
    ) -> Self {
        Self {
            active: Mutex::new(Some(active)),
            machine: machine.clone(),
            use_of_machine: Mutex::default(),
            _permits: permits,
        }
    }

    /// Waits until no lab has the machine for itself, and shares the machine with other labs.
    pub async fn share_machine(&self) {
        self.acquire_machine(1).await;
    }

    /// Waits until no other lab uses the machine, and keeps others from it.
    pub(super) async fn claim_machine(&self) {
        self.acquire_machine(MACHINE_PERMITS).await;
    }

    async fn acquire_machine(&self, permits: u32) {
        let begun = Instant::now();
        {
            let mut part = self.use_of_machine();
            part.permits = None;
            part.waits_since = Some(begun);
        }
        // Fails only if the semaphore is closed, which never happens.
        let acquired = Arc::clone(&self.machine.0)
            .acquire_many_owned(permits)
            .await;
        let mut part = self.use_of_machine();
        part.permits = acquired.ok();
        part.waits_since = None;
        part.waited += begun.elapsed();
    }

    fn use_of_machine(&self) -> MutexGuard<'_, UseOfMachine> {
        let part = self.use_of_machine.lock();
        part.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time for which the lab waited for the machine until now.
    pub(super) fn waited(&self) -> Duration {
        let part = self.use_of_machine();
        part.waited
            + part
                .waits_since
                .map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Waits for the probes of the lab. If they take longer than [`WAITING_AFTER`], another lab may
    /// use the processor.
    pub async fn finish_probes<T>(&self, probes: impl Future<Output = T>) -> T {
        let mut probes = pin!(probes);
        tokio::select! {
            biased;
            finished = &mut probes => return finished,
            () = sleep(WAITING_AFTER) => {}
        }
        drop(
            self.active
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        probes.await
    }
}

/// Time since a moment, without that in which a lab waited for the machine.
pub(super) struct Stopwatch<'a> {
    begun: Instant,
    room: Option<&'a Room>,
    waited_before: Duration,
}

impl<'a> Stopwatch<'a> {
    /// Begins now.
    pub(super) fn start(room: Option<&'a Room>) -> Self {
        Self {
            begun: Instant::now(),
            room,
            waited_before: room.map_or(Duration::ZERO, Room::waited),
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        let waited = self.room.map_or(Duration::ZERO, Room::waited);
        let waited = waited.saturating_sub(self.waited_before);
        self.begun.elapsed().saturating_sub(waited)
    }

    /// Runs a trial until `limit` has elapsed. `None` if the trial did not end before.
    pub(super) async fn limit<T>(
        &self,
        limit: Duration,
        trial: impl Future<Output = T>,
    ) -> Option<T> {
        let mut trial = pin!(trial);
        while let Some(rest) = limit
            .checked_sub(self.elapsed())
            .filter(|rest| !rest.is_zero())
        {
            if let Ok(ended) = timeout(rest, &mut trial).await {
                return Some(ended);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(permits: &Arc<Semaphore>, machine: &Machine) -> Room {
        let acquire = || Arc::clone(permits).try_acquire_owned().unwrap();
        Room::new([acquire(), acquire()], acquire(), machine)
    }

    fn permits(number: usize) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(number))
    }

    #[tokio::test(start_paused = true)]
    async fn machine_is_shared_or_claimed_by_one_lab() {
        let (permits, machine) = (permits(6), Machine::default());
        let rooms = [room(&permits, &machine), room(&permits, &machine)];
        rooms[0].share_machine().await;
        rooms[1].share_machine().await;
        let [first, second] = rooms;
        {
            let mut claim = pin!(first.claim_machine());
            assert!(timeout(WAITING_AFTER, &mut claim).await.is_err());
            drop(second);
            claim.await;
        }
        let third = room(&permits, &machine);
        assert!(timeout(WAITING_AFTER, third.share_machine()).await.is_err());
        first.share_machine().await;
        third.share_machine().await;
    }

    #[tokio::test(start_paused = true)]
    async fn limit_of_a_trial_excludes_waits_for_the_machine() {
        const SECOND: Duration = Duration::from_secs(1);
        let (permits, machine) = (permits(6), Machine::default());
        let [own, other] = [room(&permits, &machine), room(&permits, &machine)];
        own.share_machine().await;
        other.share_machine().await;
        let stopwatch = Stopwatch::start(Some(&own));
        let trial = async {
            own.claim_machine().await;
            sleep(SECOND * 2).await;
        };
        let others = async {
            sleep(SECOND * 20).await;
            drop(other);
        };
        let (ended, ()) = tokio::join!(stopwatch.limit(SECOND * 3, trial), others);
        assert_eq!(ended, Some(()));
        assert_eq!(stopwatch.elapsed(), SECOND * 2);
        let ended = stopwatch.limit(SECOND * 3, sleep(SECOND * 2)).await;
        assert_eq!(ended, None);
    }

    #[tokio::test(start_paused = true)]
    async fn room_of_waiting_probes_leaves_processor_to_others() {
        let permits = permits(3);
        let room = room(&permits, &Machine::default());
        room.finish_probes(sleep(WAITING_AFTER / 2)).await;
        assert_eq!(permits.available_permits(), 0);
        room.finish_probes(sleep(WAITING_AFTER * 2)).await;
        assert_eq!(permits.available_permits(), 1);
        // The rest of the room is kept.
        room.finish_probes(sleep(WAITING_AFTER * 2)).await;
        assert_eq!(permits.available_permits(), 1);
    }
}
