//! Targets by route count. They should hardly depend on it.

use super::site::Kind;

/// Targets for a route count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Targets {
    /// The largest route count that these targets apply to.
    routes: usize,
    /// Milliseconds from a new route to its first response.
    new_route: f64,
    /// Milliseconds from any other change to the first response that reflects it.
    others: f64,
    /// Kibibytes sent to an Envoy per change.
    pub(crate) bytes: f64,
    /// Memory of Sesame in MiB after all changes.
    pub(crate) sesame: f64,
    /// Memory of an Envoy in MiB.
    pub(crate) envoy: f64,
    /// Milliseconds from a restart until a fresh Envoy serves all routes.
    pub(crate) fresh: f64,
}

/// Sesame's CPU time per change, in milliseconds.
pub(crate) const PROCESSOR: f64 = 1.0;
/// The 95th percentile divided by the median.
pub(crate) const SPREAD: f64 = 2.0;
/// Sesame's time divided by the baseline server's.
pub(crate) const FLOOR: f64 = 1.3;

const ALL: [Targets; 3] = [
    Targets {
        routes: 10,
        new_route: 6.0,
        others: 5.0,
        bytes: 2.0,
        sesame: 24.0,
        envoy: 75.0,
        fresh: 1_000.0,
    },
    Targets {
        routes: 5_000,
        new_route: 7.0,
        others: 6.0,
        bytes: 10.0,
        sesame: 64.0,
        envoy: 250.0,
        fresh: 4_000.0,
    },
    Targets {
        routes: 10_000,
        new_route: 8.0,
        others: 7.0,
        bytes: 20.0,
        sesame: 110.0,
        envoy: 450.0,
        fresh: 8_000.0,
    },
];

impl Targets {
    /// Targets for this route count; above the largest known count, the last ones.
    pub(crate) fn of(routes: usize) -> Self {
        let large = ALL.iter().find(|targets| targets.routes >= routes);
        *large.unwrap_or(&ALL[ALL.len() - 1])
    }

    /// Milliseconds from a change to the first response that reflects it.
    pub(crate) fn shown(&self, kind: Kind) -> f64 {
        match kind {
            Kind::NewRoute => self.new_route,
            Kind::Backend | Kind::Endpoint | Kind::Deleted => self.others,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_the_next_larger_count_apply() {
        let of = |routes| Targets::of(routes).routes;
        assert_eq!(
            [1, 10, 11, 5_000, 10_000, 20_000].map(of),
            [10, 10, 5_000, 5_000, 10_000, 10_000]
        );
    }
}
