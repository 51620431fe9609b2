package main

import "strings"

// conformanceRun says how a case is carried out.
type conformanceRun struct {
	// not is why it is not; without are the requests that are not made.
	not     string
	without []int
	// before has what is done before a request.
	before map[int]func(*suite)
}

// The reasons.
const (
	ofGateways = "it is about a Gateway, its listeners, addresses, TLS or hostnames, which a mesh does not have"
	noRedirect = "a redirect is no answer to an RPC: no gRPC client follows one"
	noQuery    = "an RPC has no query"
	onlyPOST   = "an RPC is always a POST"
)

// conformanceGroup is why all cases of a group are not carried out, empty if each has to be in conformanceCases.
func conformanceGroup(name string) (reason string) {
	for prefix, reason := range map[string]string{
		"Gateway":          ofGateways,
		"ListenerSet":      ofGateways,
		"BackendTLSPolicy": "TLS between a gateway and its backends; clients of a mesh have their own credentials",
		"TCPRoute":         "connections, of which RPCs know nothing",
		"TLSRoute":         "connections, of which RPCs know nothing",
		"UDPRoute":         "no RPC is sent over UDP",
	} {
		if strings.HasPrefix(name, prefix) {
			return reason
		}
	}
	if strings.Contains(name, "Redirect") && !strings.Contains(name, "Mirror") {
		return noRedirect
	}
	return ""
}

// conformanceCases are the cases of GRPCRoutes, of HTTPRoutes and of meshes. The empty value carries one out.
var conformanceCases = map[string]conformanceRun{
	"GRPCExactMethodMatching":           {},
	"GRPCRouteHeaderMatching":           {},
	"GRPCRouteNamedRule":                {},
	"GRPCRouteWeight":                   {},
	"GRPCRouteListenerHostnameMatching": {not: ofGateways},
	"MeshGRPCRouteWeight":               {},

	"MeshBasic":                                 {},
	"MeshConsumerRoute":                         {},
	"MeshFrontend":                              {without: []int{1}}, // of a pod's address, for which a client does not ask a control plane
	"MeshFrontendHostname":                      {not: "an RPC's target is the Service; there is no second name that could be wrong"},
	"MeshPorts":                                 {},
	"MeshTrafficSplit":                          {},
	"MeshHTTPRouteMatching":                     {},
	"MeshHTTPRouteNamedRule":                    {},
	"MeshHTTPRouteQueryParamMatching":           {not: noQuery},
	"MeshHTTPRouteBackendRequestHeaderModifier": {},
	"MeshHTTPRouteRequestHeaderModifier":        {},
	"MeshHTTPRouteRewritePath":                  {},
	"MeshHTTPRouteSimpleSameNamespace":          {},
	"MeshHTTPRouteWeight":                       {},

	"HTTPRouteBackendProtocolH2C":                       {},
	"HTTPRouteBackendRequestHeaderModifier":             {},
	"HTTPRouteExactPathMatching":                        {},
	"HTTPRouteHeaderMatching":                           {},
	"HTTPRouteInvalidCrossNamespaceBackendRef":          {},
	"HTTPRouteInvalidNonExistentBackendRef":             {},
	"HTTPRouteInvalidReferenceGrant":                    {},
	"HTTPRouteInvalidBackendRefUnknownKind":             {},
	"HTTPRouteMatching":                                 {},
	"HTTPRouteMatchingAcrossRoutes":                     {},
	"HTTPRouteNamedRule":                                {},
	"HTTPRoutePartiallyInvalidViaInvalidReferenceGrant": {},
	"HTTPRoutePathMatchOrder":                           {},
	"HTTPRouteReferenceGrant":                           {before: map[int]func(*suite){1: deleteGrant}},
	"HTTPRouteRequestHeaderModifier":                    {},
	"HTTPRouteRequestMirror":                            {},
	"HTTPRouteRequestMultipleMirrors":                   {},
	"HTTPRouteResponseHeaderModifier":                   {},
	"HTTPRouteRewriteHost":                              {},
	"HTTPRouteRewritePath":                              {},
	"HTTPRouteSimpleSameNamespace":                      {},
	"HTTPRouteTimeoutBackendRequest":                    {},
	"HTTPRouteTimeoutRequest":                           {},
	"HTTPRouteWeight":                                   {},
}
