//! The limits on a tree.

/// The limits on a root's tree.
pub(super) const LIMIT: Budget = Budget {
    links: 16_384,
    routes: 65_536,
    bytes: 16 * 1024 * 1024,
};

/// The remaining budget of a walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// The number of inclusions, whether or not they can be followed.
    pub(super) links: usize,
    /// The number of routes.
    pub(super) routes: usize,
    /// The memory for routes and conditions, in bytes.
    pub(super) bytes: usize,
}

impl Budget {
    /// Checks that the budget covers a cost.
    ///
    /// # Errors
    /// The limit that the cost exceeds.
    pub(super) fn covers(self, cost: Self) -> Result<(), String> {
        if cost.links > self.links {
            return Err(format!("{} inclusions", LIMIT.links));
        }
        if cost.routes > self.routes {
            return Err(format!("{} routes", LIMIT.routes));
        }
        if cost.bytes > self.bytes {
            return Err(format!("{} bytes of routes and conditions", LIMIT.bytes));
        }
        Ok(())
    }

    pub(super) fn without(self, cost: Self) -> Self {
        Self {
            links: self.links.saturating_sub(cost.links),
            routes: self.routes.saturating_sub(cost.routes),
            bytes: self.bytes.saturating_sub(cost.bytes),
        }
    }

    /// One of `count` equal shares.
    pub(super) fn share(self, count: usize) -> Self {
        Self {
            links: self.links / count,
            routes: self.routes / count,
            bytes: self.bytes / count,
        }
    }
}
