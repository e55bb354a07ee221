//! The Gateway API release that is installed in a cluster.

/// The annotation on each CRD with the release's version.
const VERSION_ANNOTATION: &str = "gateway.networking.k8s.io/bundle-version";

/// The annotation on each CRD with the release's channel.
const CHANNEL_ANNOTATION: &str = "gateway.networking.k8s.io/channel";

/// An installed Gateway API release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The version, such as `v1.7.0`.
    pub version: String,
    /// True for the experimental channel, whose CRDs have experimental fields.
    pub experimental: bool,
}

impl Release {
    /// Reads a release from a CRD's annotations; `None` if they lack the version.
    pub fn of<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        Some(Self {
            version: annotation(VERSION_ANNOTATION)?.to_owned(),
            experimental: annotation(CHANNEL_ANNOTATION) == Some("experimental"),
        })
    }
}
