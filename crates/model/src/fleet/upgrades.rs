use std::fmt;

use super::FleetId;

/// Progress in upgrading the Envoys of all fleets to the running release of Sesame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpgradeProgress {
    /// All fleets are upgraded.
    Complete,
    /// Fleets wait until all replicas of Sesame run the same release.
    AwaitingSesame {
        /// The number of fleets that wait.
        waiting: usize,
    },
    /// A fleet is being upgraded.
    Upgrading {
        /// The fleet.
        fleet: FleetId,
        /// The number of fleets that wait.
        waiting: usize,
    },
    /// The upgrade of a fleet has failed.
    Paused {
        /// The fleet.
        fleet: FleetId,
        /// Why it failed.
        reason: String,
        /// The number of fleets that wait.
        waiting: usize,
    },
}

/// The progress as sentences.
impl fmt::Display for UpgradeProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => f.write_str("The Envoys of all fleets run this release of Sesame."),
            Self::AwaitingSesame { waiting } => write!(
                f,
                "{} until all replicas of Sesame's Deployment run the same release.",
                wait(*waiting)
            ),
            Self::Upgrading { fleet, waiting } => {
                write!(f, "The Envoys of {fleet} are being replaced.")?;
                match waiting {
                    0 => Ok(()),
                    waiting => write!(f, " {} until they are available.", wait(*waiting)),
                }
            }
            Self::Paused {
                fleet,
                reason,
                waiting,
            } => {
                write!(f, "The upgrade of the Envoys of {fleet} failed: {reason}.")?;
                match waiting {
                    0 => Ok(()),
                    waiting => write!(f, " {} until it succeeds.", wait(*waiting)),
                }
            }
        }
    }
}

fn wait(fleets: usize) -> String {
    match fleets {
        1 => "1 fleet waits".to_owned(),
        more => format!("{more} fleets wait"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_fleet_and_the_reason() {
        let fleet = FleetId::of_gateway("shop", "web");
        let upgrading = UpgradeProgress::Upgrading {
            fleet: fleet.clone(),
            waiting: 0,
        };
        assert_eq!(
            upgrading.to_string(),
            "The Envoys of shop/web are being replaced."
        );
        let paused = UpgradeProgress::Paused {
            fleet,
            reason: "no capacity".to_owned(),
            waiting: 2,
        };
        assert_eq!(
            paused.to_string(),
            "The upgrade of the Envoys of shop/web failed: no capacity. 2 fleets wait until it succeeds."
        );
        let waiting = UpgradeProgress::AwaitingSesame { waiting: 1 };
        assert_eq!(
            waiting.to_string(),
            "1 fleet waits until all replicas of Sesame's Deployment run the same release."
        );
    }
}
