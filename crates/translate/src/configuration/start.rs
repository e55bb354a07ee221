//! The settings that take effect when Sesame starts: those of its own processes, and what it watches.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use sesame_api::{
    ConfigurationSpec, ContourCompatMode, LeaderElectionConfiguration, MetricsConfiguration,
    UnmanagedEnvoy, XdsConfiguration,
};

use crate::problem::FieldError;
use crate::settings::Mode;

/// The longest Lease, which bounds the time without a leader.
const MAX_LEASE: Duration = Duration::from_secs(60);

/// The settings that take effect when Sesame starts. `None` means the setting of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartSettings {
    /// Where clients reach unmanaged Envoys.
    pub unmanaged_envoy: Option<UnmanagedEnvoy>,
    /// The namespaces to watch, except the configuration's own.
    pub watch_namespaces: Option<Vec<Arc<str>>>,
    /// Whether Contour's objects are read.
    pub contour: Option<ContourCompatMode>,
    /// The xDS server.
    pub xds: XdsSettings,
    /// The address and port of a server for metrics.
    pub metrics: Option<(Option<IpAddr>, u16)>,
    /// The leader election.
    pub election: Option<ElectionSettings>,
}

/// The xDS server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdsSettings {
    /// The address that it listens on.
    pub address: Option<IpAddr>,
    /// The port that it listens on.
    pub port: Option<u16>,
    /// The DNS name at which managed Envoys reach it.
    pub advertised_host: Option<Arc<str>>,
    /// The port at which they reach it.
    pub advertised_port: Option<u16>,
}

/// The leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionSettings {
    /// Whether there is an election.
    pub enabled: bool,
    /// The time after which a Lease expires, in whole seconds.
    pub lease_duration: Duration,
    /// The time after which a leader that can't renew its Lease steps down: shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// The time between two renewals.
    pub retry_period: Duration,
}

impl Default for ElectionSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            lease_duration: Duration::from_secs(10),
            renew_deadline: Duration::from_secs(8),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl StartSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// All invalid fields.
    pub(super) fn read(spec: &ConfigurationSpec) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        let settings = Self {
            unmanaged_envoy: spec.unmanaged_envoy.clone(),
            watch_namespaces: spec.watch_namespaces.clone(),
            contour: spec.contour_compat.clone(),
            xds: spec.xds.as_ref().map_or_else(Default::default, |section| {
                XdsSettings::read(section, &mut errors)
            }),
            metrics: spec.metrics.as_ref().map(|section| {
                let MetricsConfiguration { address, port } = section;
                (
                    listen_address("metrics.address", address, &mut errors),
                    *port,
                )
            }),
            election: spec
                .leader_election
                .as_ref()
                .map(|section| ElectionSettings::read(section, &mut errors)),
        };
        match errors.is_empty() {
            true => Ok(settings),
            false => Err(errors),
        }
    }

    /// The fields that differ from these settings, with which the instance started, and so need a restart.
    pub(super) fn changed(&self, mode: &Mode, spec: &ConfigurationSpec) -> Vec<FieldError> {
        let Ok(new) = Self::read(spec) else {
            return Vec::new();
        };
        let mut fields = vec![("contourCompat", new.contour != self.contour)];
        if matches!(mode, Mode::Unmanaged { .. }) && spec.envoy.is_none() {
            let changed = new.unmanaged_envoy != self.unmanaged_envoy;
            fields.push(("unmanagedEnvoy", changed));
        }
        if *mode != Mode::Local {
            fields.extend([
                (
                    "watchNamespaces",
                    new.watch_namespaces != self.watch_namespaces,
                ),
                ("xds", new.xds != self.xds),
                ("metrics", new.metrics != self.metrics),
                ("leaderElection", new.election != self.election),
            ]);
        }
        let changed = fields.into_iter().filter(|(_, changed)| *changed);
        changed
            .map(|(field, _)| FieldError::new(field, "has changed; restart Sesame to apply it"))
            .collect()
    }
}

impl XdsSettings {
    fn read(section: &XdsConfiguration, errors: &mut Vec<FieldError>) -> Self {
        Self {
            address: listen_address("xds.address", &section.address, errors),
            port: section.port,
            advertised_host: section.advertised_host.clone(),
            advertised_port: section.advertised_port,
        }
    }
}

impl ElectionSettings {
    fn read(section: &LeaderElectionConfiguration, errors: &mut Vec<FieldError>) -> Self {
        let default = Self::default();
        let or = |given: &Option<sesame_api::Duration>, default: Duration| {
            given.as_ref().map_or(default, sesame_api::Duration::as_std)
        };
        let settings = Self {
            enabled: !section.disabled,
            lease_duration: or(&section.lease_duration, default.lease_duration),
            renew_deadline: or(&section.renew_deadline, default.renew_deadline),
            retry_period: or(&section.retry_period, default.retry_period),
        };
        let mut expect = |valid: bool, field: &str, message: &str| {
            if !valid {
                errors.push(FieldError::new(format!("leaderElection.{field}"), message));
            }
        };
        expect(
            settings.lease_duration.subsec_nanos() == 0 && settings.lease_duration <= MAX_LEASE,
            "leaseDuration",
            "expected whole seconds, 60s at most",
        );
        expect(
            settings.renew_deadline + Duration::from_secs(1) <= settings.lease_duration,
            "renewDeadline",
            "expected at least a second less than leaseDuration, which is 10s by default",
        );
        expect(
            !settings.retry_period.is_zero()
                && settings.retry_period * 2 <= settings.renew_deadline,
            "retryPeriod",
            "expected at most half of renewDeadline, which is 8s by default, and more than zero",
        );
        settings
    }
}

fn listen_address(
    field: &str,
    address: &Option<Arc<str>>,
    errors: &mut Vec<FieldError>,
) -> Option<IpAddr> {
    let parsed = address.as_deref()?.parse().ok();
    if parsed.is_none() {
        errors.push(FieldError::new(
            field,
            "expected an IP address, such as 0.0.0.0",
        ));
    }
    parsed
}
