"""The features of the Gateway API that headgate has, by the names of the conformance suite (GEP-2162).

`tools/conformance.py` compares them with the tests.
"""

CORE = frozenset({"GRPCRoute", "Gateway", "HTTPRoute", "Mesh", "ReferenceGrant", "TCPRoute", "TLSRoute", "UDPRoute"})
EXTENDED = frozenset(
    {
        "BackendTLSPolicy",
        "BackendTLSPolicySANValidation",
        "GRPCRouteNamedRouteRule",
        "GatewayAddressEmpty",
        "GatewayBackendClientCertificate",
        "GatewayFrontendClientCertificateValidation",
        "GatewayFrontendClientCertificateValidationInsecureFallback",
        "GatewayHTTPListenerIsolation",
        "GatewayHTTPSListenerDetectMisdirectedRequests",
        "GatewayPort8080",
        "GatewayStaticAddresses",
        "HTTPRoute303RedirectStatusCode",
        "HTTPRoute307RedirectStatusCode",
        "HTTPRoute308RedirectStatusCode",
        "HTTPRouteBackendProtocolH2C",
        "HTTPRouteBackendProtocolWebSocket",
        "HTTPRouteBackendRequestHeaderModification",
        "HTTPRouteBackendTimeout",
        "HTTPRouteCORS",
        "HTTPRouteDestinationPortMatching",
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
        "HTTPRouteRetry",
        "HTTPRouteRetryBackendTimeout",
        "HTTPRouteRetryConnectionError",
        "HTTPRouteSchemeRedirect",
        "ListenerSet",
        "MeshClusterIPMatching",
        "MeshConsumerRoute",
        "MeshHTTPRouteBackendRequestHeaderModification",
        "MeshHTTPRouteNamedRouteRule",
        "MeshHTTPRouteQueryParamMatching",
        "MeshHTTPRouteRedirectPath",
        "MeshHTTPRouteRedirectPort",
        "MeshHTTPRouteRewritePath",
        "MeshHTTPRouteSchemeRedirect",
        "TLSRouteModeMixed",
        "TLSRouteModeTerminate",
    }
)
SUPPORTED = tuple(sorted(CORE | EXTENDED))
"""All features, in the order of a GatewayClass's `status.supportedFeatures`."""
OF_MESH = tuple(name for name in SUPPORTED if name.startswith("Mesh") or name in {"GRPCRoute", "HTTPRoute"})
"""The features of the mesh, in the order of an XMesh's `status.supportedFeatures`."""
