//! Gateway API feature names (v1.7.0), as in a GatewayClass's status.
//!
//! Omits mesh features. Every GatewayClass reports all of these names, except those that `translate` lists as missing.

/// Core features of each profile.
pub const CORE: &[&str] = &[
    "Gateway",
    "GRPCRoute",
    "HTTPRoute",
    "ReferenceGrant",
    "TLSRoute",
];

/// Extended features of the standard channel, sorted.
pub const STANDARD: &[&str] = &[
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRouteNamedRouteRule",
    "GRPCRouteRequestHeaderModifier",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayInfrastructure",
    "GatewayPort8080",
    "GatewayRouteHostnameIntersectionPrecedence",
    "GatewayStaticAddresses",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteBackendURLRewrite",
    "HTTPRouteCORS",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteRetryCodes",
    "HTTPRouteRetryConnectionError",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "TCPRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
];

/// Extended features of the experimental channel, sorted.
pub const EXPERIMENTAL: &[&str] = &[
    "ClusterTrustBundle",
    "GatewayAddressRoutability",
    "GatewayAddressRoutabilityCluster",
    "GatewayListenerFilters",
    "HTTPRouteDestinationPortMatching",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_complete_and_in_order() {
        for list in [STANDARD, EXPERIMENTAL] {
            assert!(list.is_sorted());
        }
        let mut all = [CORE, STANDARD, EXPERIMENTAL].concat();
        // The API defines 64 features; 10 of them are for meshes.
        assert_eq!(all.len(), 54);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 54);
    }

    #[test]
    fn the_documentation_lists_all_features() {
        let page = include_str!("../../../docs/conformance.md");
        for name in [CORE, STANDARD, EXPERIMENTAL].concat() {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }
}
