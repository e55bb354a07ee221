//! Condition reasons, grouped by kind.
//!
//! The names are from the Gateway API; the comments give condition types and statuses.

/// Reasons in conditions of a GatewayClass.
pub mod gateway_class {
    /// Accepted=True.
    pub const ACCEPTED: &str = "Accepted";
    /// Accepted=False: the referenced parameters are missing or invalid.
    pub const INVALID_PARAMETERS: &str = "InvalidParameters";
    /// Accepted=Unknown: no controller has handled it yet.
    pub const PENDING: &str = "Pending";
    /// Accepted=False: the class cannot be served.
    pub const UNSUPPORTED: &str = "Unsupported";
    /// SupportedVersion=True.
    pub const SUPPORTED_VERSION: &str = "SupportedVersion";
    /// SupportedVersion=False, or Accepted=False because of it.
    pub const UNSUPPORTED_VERSION: &str = "UnsupportedVersion";
}

/// Reasons in conditions of a Gateway.
pub mod gateway {
    /// Accepted=True.
    pub const ACCEPTED: &str = "Accepted";
    /// Accepted=True if some listeners are invalid, False if all are.
    pub const LISTENERS_NOT_VALID: &str = "ListenersNotValid";
    /// Accepted=False or Programmed=False: the Gateway is invalid.
    pub const INVALID: &str = "Invalid";
    /// Accepted=False: the referenced parameters are missing or invalid.
    pub const INVALID_PARAMETERS: &str = "InvalidParameters";
    /// Accepted=False: unsupported address type.
    pub const UNSUPPORTED_ADDRESS: &str = "UnsupportedAddress";
    /// Accepted=Unknown or Programmed=False: not ready yet.
    pub const PENDING: &str = "Pending";
    /// Programmed=True.
    pub const PROGRAMMED: &str = "Programmed";
    /// Programmed=False: infrastructure is exhausted.
    pub const NO_RESOURCES: &str = "NoResources";
    /// Programmed=False: no address yet.
    pub const ADDRESS_NOT_ASSIGNED: &str = "AddressNotAssigned";
    /// Programmed=False: a requested address is not available.
    pub const ADDRESS_NOT_USABLE: &str = "AddressNotUsable";
    /// AddressesAssigned=True.
    pub const ADDRESSES_ASSIGNED: &str = "AddressesAssigned";
    /// AddressesAssigned=False: some requests are satisfied.
    pub const PARTIALLY_ASSIGNED: &str = "PartiallyAssigned";
    /// AddressesAssigned=False: no request is satisfied.
    pub const NOT_ASSIGNED: &str = "NotAssigned";
    /// DefaultGateway=True.
    pub const DEFAULT_GATEWAY: &str = "DefaultGateway";
    /// InsecureFrontendValidationMode=True.
    pub const CONFIGURATION_CHANGED: &str = "ConfigurationChanged";
    /// ResolvedRefs=True.
    pub const RESOLVED_REFS: &str = "ResolvedRefs";
    /// ResolvedRefs=False: the client certificate for backends is missing or invalid.
    pub const INVALID_CLIENT_CERTIFICATE_REF: &str = "InvalidClientCertificateRef";
    /// ResolvedRefs=False: no ReferenceGrant allows a reference.
    pub const REF_NOT_PERMITTED: &str = "RefNotPermitted";
    /// ResolvedRefs=False: a listener's references are not resolved.
    pub const LISTENERS_NOT_RESOLVED: &str = "ListenersNotResolved";
    /// AttachedListenerSets=True.
    pub const LISTENER_SETS_ATTACHED: &str = "ListenerSetsAttached";
    /// AttachedListenerSets=False: sets are allowed, but none is attached.
    pub const NO_LISTENER_SETS_ATTACHED: &str = "NoListenerSetsAttached";
    /// AttachedListenerSets=Unknown: the Gateway does not allow sets.
    pub const LISTENER_SETS_NOT_ALLOWED: &str = "ListenerSetsNotAllowed";
}

/// Reasons in conditions of a listener, in a Gateway or a ListenerSet.
pub mod listener {
    /// Accepted=True.
    pub const ACCEPTED: &str = "Accepted";
    /// Accepted=False: the port cannot be bound.
    pub const PORT_UNAVAILABLE: &str = "PortUnavailable";
    /// Accepted=False: unsupported protocol.
    pub const UNSUPPORTED_PROTOCOL: &str = "UnsupportedProtocol";
    /// Accepted=False: client certificates are required, but no CA certificate is valid.
    pub const NO_VALID_CA_CERTIFICATE: &str = "NoValidCACertificate";
    /// Accepted=False: unsupported value.
    pub const UNSUPPORTED_VALUE: &str = "UnsupportedValue";
    /// Accepted=False: too many listeners (ListenerSet).
    pub const TOO_MANY_LISTENERS: &str = "TooManyListeners";
    /// Conflicted=True, and Accepted=False: another listener uses the hostname.
    pub const HOSTNAME_CONFLICT: &str = "HostnameConflict";
    /// Conflicted=True, and Accepted=False: another protocol uses the port.
    pub const PROTOCOL_CONFLICT: &str = "ProtocolConflict";
    /// Conflicted=True: any other conflict (ListenerSet).
    pub const LISTENER_CONFLICT: &str = "ListenerConflict";
    /// Conflicted=False.
    pub const NO_CONFLICTS: &str = "NoConflicts";
    /// ResolvedRefs=True.
    pub const RESOLVED_REFS: &str = "ResolvedRefs";
    /// ResolvedRefs=False: a certificate is missing or invalid.
    pub const INVALID_CERTIFICATE_REF: &str = "InvalidCertificateRef";
    /// ResolvedRefs=False: allowedRoutes has kinds that the protocol does not support.
    pub const INVALID_ROUTE_KINDS: &str = "InvalidRouteKinds";
    /// ResolvedRefs=False: no ReferenceGrant allows a reference.
    pub const REF_NOT_PERMITTED: &str = "RefNotPermitted";
    /// ResolvedRefs=False: a CA certificate is missing or invalid.
    pub const INVALID_CA_CERTIFICATE_REF: &str = "InvalidCACertificateRef";
    /// ResolvedRefs=False: a CA certificate reference to an unsupported kind.
    pub const INVALID_CA_CERTIFICATE_KIND: &str = "InvalidCACertificateKind";
    /// Programmed=True.
    pub const PROGRAMMED: &str = "Programmed";
    /// Programmed=False: the listener is invalid.
    pub const INVALID: &str = "Invalid";
    /// Programmed=False or Accepted=Unknown: not ready yet.
    pub const PENDING: &str = "Pending";
    /// OverlappingTLSConfig=True: hostnames overlap.
    pub const OVERLAPPING_HOSTNAMES: &str = "OverlappingHostnames";
    /// OverlappingTLSConfig=True: certificates overlap.
    pub const OVERLAPPING_CERTIFICATES: &str = "OverlappingCertificates";
    /// Accepted=False: a listener filter is invalid.
    pub const INVALID_LISTENER_FILTER: &str = "InvalidListenerFilter";
    /// Accepted=False: unsupported order of listener filters.
    pub const INVALID_LISTENER_FILTER_ORDER: &str = "InvalidListenerFilterOrder";
    /// ResolvedRefs=False: a listener filter's reference is missing or invalid.
    pub const INVALID_LISTENER_FILTER_REF: &str = "InvalidListenerFilterRef";
}

/// Reasons in conditions of a ListenerSet.
pub mod listener_set {
    /// Accepted=True.
    pub const ACCEPTED: &str = "Accepted";
    /// Programmed=True.
    pub const PROGRAMMED: &str = "Programmed";
    /// Accepted=True if some listeners are invalid, False if all are; Programmed=False.
    pub const LISTENERS_NOT_VALID: &str = "ListenersNotValid";
    /// Accepted=False: the Gateway does not allow this set.
    pub const NOT_ALLOWED: &str = "NotAllowed";
    /// Accepted=False: the Gateway itself is not accepted.
    pub const PARENT_NOT_ACCEPTED: &str = "ParentNotAccepted";
    /// Programmed=False: the Gateway itself is not programmed.
    pub const PARENT_NOT_PROGRAMMED: &str = "ParentNotProgrammed";
    /// Programmed=False: a port cannot be bound.
    pub const PORT_UNAVAILABLE: &str = "PortUnavailable";
    /// Accepted=False or Programmed=False: the set is invalid.
    pub const INVALID: &str = "Invalid";
    /// Unknown: not ready yet.
    pub const PENDING: &str = "Pending";
}

/// Reasons in conditions of a route.
pub mod route {
    /// Accepted=True.
    pub const ACCEPTED: &str = "Accepted";
    /// Accepted=False: no listener allows the route's namespace or kind.
    pub const NOT_ALLOWED_BY_LISTENERS: &str = "NotAllowedByListeners";
    /// Accepted=False: no listener shares a hostname with the route.
    pub const NO_MATCHING_LISTENER_HOSTNAME: &str = "NoMatchingListenerHostname";
    /// Accepted=False: the parent has no such section or port.
    pub const NO_MATCHING_PARENT: &str = "NoMatchingParent";
    /// Accepted=False or PartiallyInvalid=True: unsupported value.
    pub const UNSUPPORTED_VALUE: &str = "UnsupportedValue";
    /// Accepted=Unknown: not handled yet.
    pub const PENDING: &str = "Pending";
    /// Accepted=False: incompatible filters.
    pub const INCOMPATIBLE_FILTERS: &str = "IncompatibleFilters";
    /// ResolvedRefs=True.
    pub const RESOLVED_REFS: &str = "ResolvedRefs";
    /// ResolvedRefs=False: no ReferenceGrant allows a reference.
    pub const REF_NOT_PERMITTED: &str = "RefNotPermitted";
    /// ResolvedRefs=False: a reference to an unsupported kind.
    pub const INVALID_KIND: &str = "InvalidKind";
    /// ResolvedRefs=False: a backend is missing.
    pub const BACKEND_NOT_FOUND: &str = "BackendNotFound";
    /// ResolvedRefs=False: a backend's protocol is not supported.
    pub const UNSUPPORTED_PROTOCOL: &str = "UnsupportedProtocol";
}

/// Reasons in conditions of a policy.
pub mod policy {
    /// Accepted=True.
    pub const ACCEPTED: &str = "Accepted";
    /// Accepted=False: another policy for the same target takes precedence.
    pub const CONFLICTED: &str = "Conflicted";
    /// Accepted=False: the policy is invalid.
    pub const INVALID: &str = "Invalid";
    /// Accepted=False: the target is missing.
    pub const TARGET_NOT_FOUND: &str = "TargetNotFound";
    /// Accepted=False: no CA certificate is valid (BackendTLSPolicy).
    pub const NO_VALID_CA_CERTIFICATE: &str = "NoValidCACertificate";
    /// ResolvedRefs=True.
    pub const RESOLVED_REFS: &str = "ResolvedRefs";
    /// ResolvedRefs=False: a CA certificate is missing or invalid (BackendTLSPolicy).
    pub const INVALID_CA_CERTIFICATE_REF: &str = "InvalidCACertificateRef";
    /// ResolvedRefs=False: a reference to an unsupported kind.
    pub const INVALID_KIND: &str = "InvalidKind";
}
