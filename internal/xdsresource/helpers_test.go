//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"errors"
	"regexp"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/cluster_provided/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/omit_canary_hosts/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// mustDecode decodes a resource that has to be valid.
func mustDecode[T any](t testing.TB, rt *xdsclient.ResourceType, m proto.Message) *T {
	t.Helper()
	value, err := rt.Decode(xdsmsg.Any(m), xdsclient.DecodeOptions{})
	if err != nil {
		t.Fatalf("Decode(%s) = %v, want no error", rt.Name, err)
	}
	return value.(*T)
}

var trusted = xdsclient.DecodeOptions{
	Server: &bootstrap.Server{Features: []bootstrap.Feature{bootstrap.FeatureTrustedXDSServer}},
}

// mustDecodeRoutes decodes a RouteConfiguration from a server that is trusted.
func mustDecodeRoutes(t testing.TB, config *routepb.RouteConfiguration) *RouteConfiguration {
	t.Helper()
	value, err := RouteConfigurationType.Decode(xdsmsg.Any(config), trusted)
	if err != nil {
		t.Fatalf("Decode = %v, want no error", err)
	}
	return value.(*RouteConfiguration)
}

// withText returns m with more fields set, which are in prototext. [Name] is the URL of a type in
// anyTypes.
func withText[M proto.Message](t testing.TB, m M, fields string) M {
	t.Helper()
	fields = anyName.ReplaceAllStringFunc(fields, func(name string) string {
		return "[type.googleapis.com/" + anyTypes[name[1:len(name)-1]] + "]"
	})
	more := m.ProtoReflect().New().Interface()
	if err := prototext.Unmarshal([]byte(fields), more); err != nil {
		t.Fatalf("%v in %s", err, fields)
	}
	proto.Merge(m, more)
	return m
}

// blue is the EDS cluster "blue" with more fields set.
func blue(t testing.TB, fields string) *clusterpb.Cluster {
	t.Helper()
	return withText(t, xdsmsg.EDSCluster("blue", ""), fields)
}

// matchedBy is a route to the cluster "a" by the prefix "/", with more fields of its match set.
func matchedBy(t testing.TB, fields string) *routepb.Route {
	t.Helper()
	return withText(t, xdsmsg.PrefixRoute("/", "a"), `match{`+fields+`}`)
}

// policies has an entry of LoadBalancingPolicy.policies for each message.
func policies(messages ...string) string {
	text := ""
	for _, m := range messages {
		text += `policies{typed_extension_config{typed_config{` + m + `}}}`
	}
	return text
}

// wrrLocality is a WrrLocality around policies.
func wrrLocality(messages ...string) string {
	return `[WrrLocality]{endpoint_picking_policy{` + policies(messages...) + `}}`
}

// picking is the cluster blue with the policies as its load_balancing_policy.
func picking(t testing.TB, messages ...string) *clusterpb.Cluster {
	t.Helper()
	return blue(t, `load_balancing_policy{`+policies(messages...)+`}`)
}

var anyName = regexp.MustCompile(`\[[A-Z]\w+\]`)

// anyTypes are the messages that texts have in an Any.
var anyTypes = map[string]string{
	"Address":                      "envoy.config.core.v3.Address",
	"ClientSideWeightedRoundRobin": "envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin",
	"Audience":                     "envoy.extensions.filters.http.gcp_authn.v3.Audience",
	"DnsCluster":                   "envoy.extensions.clusters.dns.v3.DnsCluster",
	"ClusterConfig":                "envoy.extensions.clusters.aggregate.v3.ClusterConfig",
	"ClusterProvided":              "envoy.extensions.load_balancing_policies.cluster_provided.v3.ClusterProvided",
	"DownstreamTlsContext":         "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
	"FilterConfig":                 "envoy.config.route.v3.FilterConfig",
	"Http11ProxyUpstreamTransport": "envoy.extensions.transport_sockets.http_11_proxy.v3.Http11ProxyUpstreamTransport",
	"HttpConnectionManager":        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
	"HttpProtocolOptions":          "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
	"LeastRequest":                 "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest",
	"Maglev":                       "envoy.extensions.load_balancing_policies.maglev.v3.Maglev",
	"OmitCanaryHostsPredicate":     "envoy.extensions.retry.host.omit_canary_hosts.v3.OmitCanaryHostsPredicate",
	"PickFirst":                    "envoy.extensions.load_balancing_policies.pick_first.v3.PickFirst",
	"PreviousHostsPredicate":       "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
	"Random":                       "envoy.extensions.load_balancing_policies.random.v3.Random",
	"RandomSubsetting":             "envoy.extensions.load_balancing_policies.random_subsetting.v3.RandomSubsetting",
	"RawBuffer":                    "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer",
	"RingHash":                     "envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash",
	"RoundRobin":                   "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin",
	"Router":                       "envoy.extensions.filters.http.router.v3.Router",
	"StringValue":                  "google.protobuf.StringValue",
	"TypedStruct":                  "xds.type.v3.TypedStruct",
	"UpstreamTlsContext":           "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
	"WrrLocality":                  "envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality",
}

// fault is one of Faults. Problem ends with the suggestion, if there is one.
type fault struct{ Path, Problem string }

// decodeFaults decodes a resource and returns its errors.
func decodeFaults(t testing.TB, rt *xdsclient.ResourceType, m proto.Message, options ...xdsclient.DecodeOptions) []fault {
	t.Helper()
	value, err := rt.Decode(xdsmsg.Any(m), append(options, xdsclient.DecodeOptions{})[0])
	if err == nil {
		return nil
	}
	if value != nil {
		t.Errorf("Decode(%s) returned the value %v beside an error", rt.Name, value)
	}
	var faults *Faults
	if !errors.As(err, &faults) {
		t.Fatalf("Decode(%s) error has type %T, want *Faults", rt.Name, err)
	}
	list := make([]fault, len(faults.List))
	for i, f := range faults.List {
		problem := f.Problem
		if f.Suggestion != "" {
			problem += "; " + f.Suggestion
		}
		if list[i] = (fault{f.Path, problem}); f.String() != f.Path+": "+problem && f.String() != problem {
			t.Errorf("the fault is %q, with more than a path, a problem and a suggestion", f)
		}
	}
	return list
}
