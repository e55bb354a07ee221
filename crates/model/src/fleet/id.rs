use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Identifies a fleet: a set of Envoys with the same configuration.
///
/// Its text form is `namespace/name` for a Gateway's fleet, otherwise `default` or `unmanaged`. Envoys send it as
/// `node.cluster`; certificates contain it as [`FleetId::uri`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FleetId {
    /// The fleet of one Gateway.
    Gateway {
        /// The Gateway's namespace.
        namespace: Arc<str>,
        /// The Gateway's name.
        name: Arc<str>,
    },
    /// The fleet that Sesame runs for objects without a Gateway.
    Default,
    /// Envoys that run outside Sesame, as one fleet for all configuration sources.
    Unmanaged,
}

/// The text is not a [`FleetId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseFleetIdError;

/// The text of [`FleetId::Default`].
const DEFAULT: &str = "default";
/// The text of [`FleetId::Unmanaged`].
const UNMANAGED: &str = "unmanaged";
/// The prefix of all fleet URIs.
const URI: &str = "spiffe://sesame/fleet/";

impl FleetId {
    /// The fleet of the Gateway `namespace/name`.
    pub fn of_gateway(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self::Gateway {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The URI that identifies the fleet in its Envoys' certificates: `spiffe://sesame/fleet/` plus the text form.
    pub fn uri(&self) -> String {
        format!("{URI}{self}")
    }

    /// The fleet with this [`FleetId::uri`]; `None` for any other text.
    pub fn from_uri(uri: &str) -> Option<Self> {
        uri.strip_prefix(URI)?.parse().ok()
    }
}

impl fmt::Display for FleetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateway { namespace, name } => write!(f, "{namespace}/{name}"),
            Self::Default => f.write_str(DEFAULT),
            Self::Unmanaged => f.write_str(UNMANAGED),
        }
    }
}

impl FromStr for FleetId {
    type Err = ParseFleetIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            None if text == DEFAULT => Ok(Self::Default),
            None if text == UNMANAGED => Ok(Self::Unmanaged),
            Some((namespace, name))
                if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
            {
                Ok(Self::of_gateway(namespace, name))
            }
            _ => Err(ParseFleetIdError),
        }
    }
}

impl fmt::Display for ParseFleetIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "invalid fleet ID: expected `namespace/name`, `{DEFAULT}` or `{UNMANAGED}`"
        )
    }
}

impl std::error::Error for ParseFleetIdError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_uri_roundtrip() {
        for (fleet, text) in [
            (FleetId::of_gateway("ns", "gate-way.1"), "ns/gate-way.1"),
            (
                FleetId::of_gateway("default", "unmanaged"),
                "default/unmanaged",
            ),
            (FleetId::Default, "default"),
            (FleetId::Unmanaged, "unmanaged"),
        ] {
            assert_eq!(fleet.to_string(), text);
            assert_eq!(text.parse(), Ok(fleet.clone()));
            assert_eq!(fleet.uri(), format!("spiffe://sesame/fleet/{text}"));
            assert_eq!(FleetId::from_uri(&fleet.uri()), Some(fleet));
        }
    }

    #[test]
    fn invalid_text_is_rejected() {
        for text in ["", "/", "ns/", "/web", "ns/web/1", "Default", "web"] {
            assert_eq!(text.parse::<FleetId>(), Err(ParseFleetIdError), "{text:?}");
        }
        for uri in [
            "",
            "spiffe://sesame/fleet/",
            "spiffe://sesame/fleet//web",
            "spiffe://sesame/fleet/ns/web/",
            "spiffe://other/fleet/ns/web",
            "SPIFFE://sesame/fleet/ns/web",
        ] {
            assert_eq!(FleetId::from_uri(uri), None, "{uri}");
        }
    }
}
