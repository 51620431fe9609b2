package main

import (
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// conformanceRun says how a case is carried out.
type conformanceRun struct {
	// not is why it is not; without are the requests that are not made.
	not     string
	without []int
	// requests take the place of those in the suite.
	requests []conformanceRequest
	// unresolved is why not all backends of the routes can be used.
	unresolved string
	// anyPath are requests whose path at the backend is wrong in the suite, which does not compare it.
	anyPath []int
	// before has what is done before a request; after is done after each.
	before map[int]func(*suite)
	after  func(*suite, *grpc.ClientConn, conformanceRequest)
}

// The reasons.
const (
	ofGateways = "it is about a Gateway, its listeners, addresses, TLS or hostnames, which a mesh does not have"
	noRedirect = "a redirect is no answer to an RPC: no gRPC client follows one"
	noQuery    = "an RPC has no query"
	onlyPOST   = "an RPC is always a POST"
)

// conformanceGroup is why all cases of a group are not carried out, empty if they are.
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

// retried are the requests of the case of retries, whose backends fail with a code of gRPC for that of HTTP, a number of times.
var retried = []conformanceRequest{
	retryOf("/retry/code-500-attempts-3", codes.Internal, 2, codes.OK),
	retryOf("/retry/code-500-attempts-3", codes.Internal, 4, codes.Internal),
	retryOf("/retry/code-500-attempts-3", codes.Unavailable, 2, codes.Unavailable),
	retryOf("/retry/code-all-attempts-2", codes.Internal, 1, codes.OK),
	retryOf("/retry/code-all-attempts-2", codes.Internal, 3, codes.Internal),
	retryOf("/retry/code-all-attempts-2", codes.Unavailable, 1, codes.OK),
	retryOf("/retry/code-all-attempts-2", codes.Unavailable, 3, codes.Unavailable),
	retryOf("/retry/code-all-attempts-2", codes.DeadlineExceeded, 1, codes.OK),
	retryOf("/retry/code-all-attempts-2", codes.DeadlineExceeded, 3, codes.DeadlineExceeded),
}

func retryOf(path string, fails codes.Code, times int, want codes.Code) (q conformanceRequest) {
	q.Request.Path, q.Request.Headers = path, map[string]string{failHeader: fmt.Sprint(int(fails)), timesHeader: fmt.Sprint(times)}
	q.Response.Code = want.String()
	return q
}

// conformanceCases are the cases of GRPCRoutes, of HTTPRoutes and of meshes that are not carried out, or not as they are in the suite.
var conformanceCases = map[string]conformanceRun{
	"GRPCRouteListenerHostnameMatching": {not: ofGateways},
	"MeshGRPCRouteWeight":               {unresolved: "BackendNotFound"}, // the suite has no echo-v3, whose weight is 0

	"MeshFrontend":                    {without: []int{1}}, // of a pod's address, for which a client does not ask a control plane
	"MeshFrontendHostname":            {not: "an RPC's target is the Service; there is no second name that could be wrong"},
	"MeshHTTPRouteNamedRule":          {anyPath: []int{1}},
	"MeshHTTPRouteQueryParamMatching": {not: noQuery},

	"HTTPRouteInvalidCrossNamespaceBackendRef":          {unresolved: "RefNotPermitted"},
	"HTTPRouteInvalidNonExistentBackendRef":             {unresolved: "BackendNotFound"},
	"HTTPRouteInvalidReferenceGrant":                    {unresolved: "RefNotPermitted"},
	"HTTPRouteInvalidBackendRefUnknownKind":             {unresolved: "InvalidKind"},
	"HTTPRouteMatchingAcrossRoutes":                     {without: []int{5}}, // a hostname does not limit a route
	"HTTPRoutePartiallyInvalidViaInvalidReferenceGrant": {unresolved: "RefNotPermitted"},
	"HTTPRouteReferenceGrant":                           {before: map[int]func(*suite){1: deleteGrant}},

	"HTTPRouteRequestHeaderModifierBackendWeights": {after: namesBackend},
	"HTTPRouteRetry":                    {requests: retried},
	"HTTPRouteServiceTypes":             {not: "it copies the addresses of pods; internal/cluster/testdata/endpoints.txt has these types"},
	"HTTPRouteObservedGenerationBump":   {not: "it has no requests; TestStatus has the generation"},
	"HTTPRouteCrossNamespace":           {not: "a route of another namespace is one of consumers in a mesh, see MeshConsumerRoute"},
	"HTTPRouteMethodMatching":           {not: onlyPOST},
	"HTTPRouteQueryParamMatching":       {not: noQuery},
	"HTTPRouteCORS":                     {not: "CORS is for browsers"},
	"HTTPRouteBackendProtocolWebSocket": {not: "an RPC is no WebSocket"},

	"HTTPRouteDisallowedKind":                             {not: ofGateways},
	"HTTPRouteHTTPSListener":                              {not: ofGateways},
	"HTTPRouteHTTPSListenerDetectMisdirectedRequests":     {not: ofGateways},
	"HTTPRouteHostnameIntersection":                       {not: ofGateways},
	"HTTPRouteInvalidCrossNamespaceParentRef":             {not: ofGateways},
	"HTTPRouteInvalidParentRefNotMatchingListenerPort":    {not: ofGateways},
	"HTTPRouteInvalidParentRefNotMatchingSectionName":     {not: ofGateways},
	"HTTPRouteInvalidParentRefSectionNameNotMatchingPort": {not: ofGateways},
	"HTTPRouteListenerHostnameMatching":                   {not: ofGateways},
	"HTTPRouteListenerPortMatching":                       {not: ofGateways},
	"HTTPRouteMultipleGateways":                           {not: ofGateways},
}
