//! The fields that are kept when an object's JSON is parsed. Other fields are dropped, which saves memory and
//! comparisons.

/// The kept fields of a mapping, or of each mapping in a list.
#[derive(Debug)]
pub struct Fields {
    /// Only these fields; if `None`, all fields except `except`.
    only: Option<&'static [&'static str]>,
    except: &'static [&'static str],
    /// The kept parts of these fields' values; other values are kept whole.
    nested: &'static [(&'static str, &'static Fields)],
}

/// The kept fields of an object.
#[derive(Debug)]
pub struct KeptFields {
    /// Fields of `metadata`.
    pub metadata: &'static Fields,
    /// Top-level fields besides `apiVersion`, `kind`, `metadata` and `status`.
    pub body: &'static Fields,
    /// Fields of `status`; `None` if translation reads none of them.
    pub status: Option<&'static Fields>,
}

impl Fields {
    /// Every field.
    pub const ALL: Fields = Fields {
        only: None,
        except: &[],
        nested: &[],
    };

    /// The kept parts of a field's value; `None` if the field is dropped.
    pub fn of(&self, field: &str) -> Option<&'static Fields> {
        let kept = match self.only {
            Some(only) => only.contains(&field),
            None => !self.except.contains(&field),
        };
        let nested = || self.nested.iter().find(|(name, _)| *name == field);
        kept.then(|| nested().map_or(&Fields::ALL, |(_, fields)| *fields))
    }
}

/// The annotation with kubectl's copy of the whole object.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The metadata in [`Meta`](crate::Meta). `managedFields` alone is often half of an object's size.
static METADATA: Fields = Fields {
    only: Some(&[
        "name",
        "namespace",
        "labels",
        "annotations",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "uid",
        "resourceVersion",
    ]),
    nested: &[(
        "annotations",
        &Fields {
            except: &[LAST_APPLIED],
            ..Fields::ALL
        },
    )],
    ..Fields::ALL
};

/// Metadata of core kinds. Annotations are dropped: Sesame doesn't use them, and an annotation on EndpointSlices
/// changes whenever a Pod changes.
static CORE_METADATA: Fields = Fields {
    only: Some(&["name", "namespace", "labels", "resourceVersion"]),
    ..Fields::ALL
};

/// Like [`CORE_METADATA`], with the UID and the owners, since an XBackend may own a Service, and with the annotations that
/// HTTPProxies and Ingresses read.
static SERVICE_METADATA: Fields = Fields {
    only: Some(&[
        "annotations",
        "name",
        "namespace",
        "labels",
        "ownerReferences",
        "resourceVersion",
        "uid",
    ]),
    nested: &[(
        "annotations",
        &Fields {
            only: Some(&SERVICE_ANNOTATIONS),
            ..Fields::ALL
        },
    )],
    ..Fields::ALL
};

/// The annotations of Services that Sesame reads, and Contour's names for them.
const SERVICE_ANNOTATIONS: [&str; 16] = [
    "projectcontour.io/max-connections",
    "projectcontour.io/max-pending-requests",
    "projectcontour.io/max-requests",
    "projectcontour.io/max-retries",
    "projectcontour.io/per-host-max-connections",
    "projectcontour.io/upstream-protocol.h2",
    "projectcontour.io/upstream-protocol.h2c",
    "projectcontour.io/upstream-protocol.tls",
    "projectsesame.io/max-connections",
    "projectsesame.io/max-pending-requests",
    "projectsesame.io/max-requests",
    "projectsesame.io/max-retries",
    "projectsesame.io/per-host-max-connections",
    "projectsesame.io/upstream-protocol.h2",
    "projectsesame.io/upstream-protocol.h2c",
    "projectsesame.io/upstream-protocol.tls",
];

/// The whole spec, and the metadata in [`Meta`](crate::Meta).
pub(crate) static WHOLE: KeptFields = KeptFields {
    metadata: &METADATA,
    body: &Fields::ALL,
    status: None,
};

/// Like [`WHOLE`], with the ports in the listeners' statuses.
pub(crate) static WITH_PORTS: KeptFields = KeptFields {
    status: Some(&Fields {
        only: Some(&["listeners"]),
        nested: &[(
            "listeners",
            &Fields {
                only: Some(&["name", "port"]),
                ..Fields::ALL
            },
        )],
        ..Fields::ALL
    }),
    ..WHOLE
};

/// The whole content, minimal metadata.
pub(crate) static CONTENT: KeptFields = KeptFields {
    metadata: &CORE_METADATA,
    body: &Fields::ALL,
    status: None,
};

/// Labels only.
pub(crate) static LABELS: KeptFields = KeptFields {
    metadata: &CORE_METADATA,
    body: &Fields {
        only: Some(&[]),
        ..Fields::ALL
    },
    status: None,
};

/// Ports, addresses and the selector, without the settings for kube-proxy and cloud providers.
pub(crate) static SERVICE: KeptFields = KeptFields {
    metadata: &SERVICE_METADATA,
    body: &Fields {
        except: &["status"],
        nested: &[(
            "spec",
            &Fields {
                except: &[
                    "allocateLoadBalancerNodePorts",
                    "clusterIPs",
                    "externalTrafficPolicy",
                    "healthCheckNodePort",
                    "internalTrafficPolicy",
                    "ipFamilyPolicy",
                    "loadBalancerClass",
                    "loadBalancerIP",
                    "loadBalancerSourceRanges",
                    "sessionAffinity",
                    "sessionAffinityConfig",
                    "trafficDistribution",
                ],
                ..Fields::ALL
            },
        )],
        ..Fields::ALL
    },
    status: None,
};

/// Addresses and conditions, without each endpoint's Pod and node.
pub(crate) static ENDPOINT_SLICE: KeptFields = KeptFields {
    metadata: &CORE_METADATA,
    body: &Fields {
        nested: &[(
            "endpoints",
            &Fields {
                except: &[
                    "deprecatedTopology",
                    "hints",
                    "hostname",
                    "nodeName",
                    "targetRef",
                    "zone",
                ],
                ..Fields::ALL
            },
        )],
        ..Fields::ALL
    },
    status: None,
};
