//! Records the requests that an API server rejected.

use super::request::Refusal;
use svclab_model::evidence::Refused;

/// Maximum number of different requests that are recorded.
const KEPT: usize = 32;

/// Maximum length of a recorded request, in characters.
const LONGEST: usize = 400;

/// Rejected requests of one node's API server, in order of first occurrence.
#[derive(Debug)]
pub struct Refusals {
    node: String,
    kept: Vec<Refused>,
    left_out: u64,
}

impl Refusals {
    /// Creates an empty record for a node.
    #[must_use]
    pub fn of(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            kept: Vec::new(),
            left_out: 0,
        }
    }

    /// Records a rejected request: its method, its path with the query, and the reason.
    pub fn note(&mut self, method: &str, target: &str, refusal: &Refusal) {
        let refused = Refused {
            node: self.node.clone(),
            request: short(&format!("{method} {target}")),
            status: refusal.code(),
            message: short(&refusal.to_string()),
            times: 1,
        };
        let mut kept = self.kept.iter_mut();
        if let Some(known) = kept.find(|known| known.is_like(&refused)) {
            known.times = known.times.saturating_add(1);
        } else if self.kept.len() < KEPT {
            self.kept.push(refused);
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
    }

    /// Returns the recorded requests, each once.
    #[must_use]
    pub fn kept(&self) -> &[Refused] {
        &self.kept
    }

    /// Returns the number of further requests that were not recorded.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// Truncates a text to the maximum length.
fn short(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::ask;
    use super::*;

    fn refused(requests: &[(&str, &str)]) -> Refusals {
        let mut refusals = Refusals::of("node-1");
        for (method, target) in requests {
            refusals.note(method, target, &ask(method, target).unwrap_err());
        }
        refusals
    }

    #[test]
    fn each_is_kept_once_in_order_with_how_often_it_was_made() {
        let refusals = refused(&[
            ("GET", "/api/v1/pods?watch=true&timeoutSeconds=301"),
            ("DELETE", "/api/v1/services"),
            ("GET", "/api/v1/pods?watch=true&timeoutSeconds=302"),
            ("GET", "/api/v1/pods?watch=true&timeoutSeconds=303"),
            ("GET", "/api/v1/pods"),
        ]);
        let told: Vec<(String, u64)> = refusals
            .kept()
            .iter()
            .map(|refused| (refused.to_string(), refused.times))
            .collect();
        let wanted = [
            (
                "GET /api/v1/pods?watch=true&timeoutSeconds=301: 404, /api/v1/pods is not served",
                3,
            ),
            (
                "DELETE /api/v1/services: 405, DELETE of /api/v1/services is not served",
                1,
            ),
            ("GET /api/v1/pods: 404, /api/v1/pods is not served", 1),
        ];
        assert_eq!(told, wanted.map(|(words, times)| (words.to_owned(), times)));
        assert!(
            refusals
                .kept()
                .iter()
                .all(|refused| refused.node == "node-1")
        );
        assert_eq!(refusals.left_out(), 0);
    }

    #[test]
    fn those_that_are_too_many_are_counted() {
        let mut refusals = Refusals::of("node-1");
        let refuse = |refusals: &mut Refusals, number: usize| {
            let target = format!("/{number}");
            let refusal = Refusal::NotFound(target.clone());
            refusals.note("GET", &target, &refusal);
        };
        for number in 0..KEPT + 3 {
            refuse(&mut refusals, number);
        }
        // A recorded request is counted even when the record is full.
        refuse(&mut refusals, 0);
        assert_eq!((refusals.kept().len(), refusals.left_out()), (KEPT, 3));
        assert_eq!(refusals.kept()[0].times, 2);
    }

    #[test]
    fn of_one_that_is_long_the_beginning_is_kept() {
        let target = format!("/{}€", "é".repeat(70_000));
        let mut refusals = Refusals::of("node-1");
        refusals.note("GET", &target, &Refusal::NotFound(target.clone()));
        let [refused] = refusals.kept() else {
            panic!("{refusals:?}")
        };
        assert_eq!(refused.request.chars().count(), LONGEST + 1);
        assert!(refused.request.starts_with("GET /éé") && refused.request.ends_with("é…"));
        assert!(refused.message.chars().count() <= LONGEST + 1);
    }
}
