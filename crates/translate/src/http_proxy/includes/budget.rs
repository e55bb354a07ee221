//! The limits on a tree.

/// The limits on a root's tree.
pub(super) const LIMIT: Budget = Budget {
    links: 16_384,
    routes: 65_536,
    bytes: 16 * 1024 * 1024,
    repeated_routes: 1_024,
    repeated_bytes: 256 * 1024,
};

/// The remaining budget of a walk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Budget {
    /// The number of inclusions, whether or not they can be followed.
    pub(super) links: usize,
    /// The number of routes.
    pub(super) routes: usize,
    /// The memory for routes and conditions, in bytes.
    pub(super) bytes: usize,
    /// The number of routes of HTTPProxies that have been visited before.
    pub(super) repeated_routes: usize,
    /// The memory for these routes, in bytes.
    pub(super) repeated_bytes: usize,
}

impl Budget {
    /// Checks that the budget covers a cost.
    ///
    /// # Errors
    /// The limit that the cost exceeds.
    pub(super) fn covers(self, cost: Self) -> Result<(), String> {
        let limits = [
            (cost.links, self.links, LIMIT.links, "inclusions"),
            (cost.routes, self.routes, LIMIT.routes, "routes"),
            (
                cost.bytes,
                self.bytes,
                LIMIT.bytes,
                "bytes of routes and conditions",
            ),
            (
                cost.repeated_routes,
                self.repeated_routes,
                LIMIT.repeated_routes,
                "routes of HTTPProxies that are included several times",
            ),
            (
                cost.repeated_bytes,
                self.repeated_bytes,
                LIMIT.repeated_bytes,
                "bytes of routes of HTTPProxies that are included several times",
            ),
        ];
        match limits.into_iter().find(|(cost, left, ..)| cost > left) {
            Some((_, _, limit, what)) => Err(format!("{limit} {what}")),
            None => Ok(()),
        }
    }

    pub(super) fn without(self, cost: Self) -> Self {
        Self {
            links: self.links.saturating_sub(cost.links),
            routes: self.routes.saturating_sub(cost.routes),
            bytes: self.bytes.saturating_sub(cost.bytes),
            repeated_routes: self.repeated_routes.saturating_sub(cost.repeated_routes),
            repeated_bytes: self.repeated_bytes.saturating_sub(cost.repeated_bytes),
        }
    }

    /// One of `count` equal shares.
    pub(super) fn share(self, count: usize) -> Self {
        Self {
            links: self.links / count,
            routes: self.routes / count,
            bytes: self.bytes / count,
            repeated_routes: self.repeated_routes / count,
            repeated_bytes: self.repeated_bytes / count,
        }
    }
}
