// Package inert registers the HTTP filters of proxies that have nothing to do in a gRPC client:
// they serve browsers and other protocols, compress bodies or only observe. If such a filter were
// unknown, a client would reject every resource that has it, unless it is optional (gRFC A39).
//
// The rule: a filter is inert if leaving it out changes neither where an RPC goes, nor whether
// it may go there, nor what the application sends and gets. A filter that authenticates,
// authorizes, limits, routes or edits is none of these. Such a filter stays unknown, and the
// resource is rejected. RBAC (gRFC A41) is known as a filter that only servers run: a client rejects a Listener with it,
// but a RouteConfiguration that clients share with servers may override its configuration.
package inert

import (
	"fmt"

	corspb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
)

func init() {
	httpfilter.Register(rbac)
	for i := range filters {
		httpfilter.Register(&filters[i])
	}
}

const (
	prefix = "type.googleapis.com/"
	envoy  = prefix + "envoy.extensions.filters.http."

	istioStats = prefix + "stats.PluginConfig"
	istioPeers = prefix + "io.istio.http.peer_metadata.Config"
	istioALPN  = prefix + "istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig"
)

var rbac = serverFilter{types: []string{envoy + "rbac.v3.RBAC", envoy + "rbac.v3.RBACPerRoute"}}

// filters are the inert filters. Of their configurations only the types are checked, except those for CORS.
var filters = []filter{
	{serverFilter{[]string{envoy + "cors.v3.Cors", envoy + "cors.v3.CorsPolicy"}, &corspb.Cors{}, &corspb.CorsPolicy{}},
		"CORS is for browsers; a gRPC client does nothing for it"},
	{only(envoy + "grpc_web.v3.GrpcWeb"), "gRPC-Web is for browsers; a gRPC client does nothing for it"},
	{only(envoy + "grpc_http1_bridge.v3.Config"), "the filter translates HTTP/1.1 to gRPC, which a gRPC client speaks"},
	{only(envoy + "connect_grpc_bridge.v3.FilterConfig"), "the filter translates Connect to gRPC, which a gRPC client speaks"},
	{serverFilter{types: []string{envoy + "compressor.v3.Compressor", envoy + "compressor.v3.CompressorPerRoute"}},
		"the application chooses the compression of its messages"},
	{only(envoy + "decompressor.v3.Decompressor"), "gRPC decompresses the messages that it gets"},
	{only(envoy + "grpc_stats.v3.FilterConfig"), "the filter counts RPCs in a proxy; gRPC has metrics of its own"},
	{only(istioStats), "the filter counts RPCs in a proxy; gRPC has metrics of its own"},
	{only(envoy + "tap.v3.Tap"), "the filter observes RPCs in a proxy"},
	{only(istioPeers), "the filter tells proxies of each other for their metrics"},
	{only(istioALPN), "gRPC always negotiates HTTP/2"},
}

// only is a filter whose overrides are of the type of its configuration.
func only(typeURL string) serverFilter { return serverFilter{types: []string{typeURL}} }

// serverFilter is known on servers. It checks the types of configurations.
type serverFilter struct {
	// types are the type URLs of the configuration and, last, the override.
	types []string
	// config and override, if not nil, are what the configurations have to be.
	config, override proto.Message
}

func (f serverFilter) TypeURLs() []string { return f.types }

func (serverFilter) IsTerminal() bool { return false }

func (f serverFilter) ParseConfig(config *anypb.Any) (httpfilter.Config, error) {
	return nil, check(config, f.types[0], f.config)
}

func (f serverFilter) ParseOverride(override *anypb.Any) (httpfilter.Config, error) {
	return nil, check(override, f.types[len(f.types)-1], f.override)
}

func check(config *anypb.Any, typeURL string, m proto.Message) error {
	if m != nil {
		return httpfilter.UnmarshalConfig(config, m.ProtoReflect().New().Interface())
	}
	got, _, err := httpfilter.TypedStruct(config)
	if err == nil && got != typeURL {
		err = fmt.Errorf("has type %q, want %q", got, typeURL)
	}
	return err
}

// filter is known on both sides, and does nothing.
type filter struct {
	serverFilter
	// reason is why it does nothing.
	reason string
}

// Inert returns why the filter does nothing. The ignored fields of a resource have it.
func (f *filter) Inert() string { return f.reason }

func (f *filter) NewClientInstance(httpfilter.ClientInstanceInfo) httpfilter.ClientInstance { return f }

// ClientInterceptor leaves the filter out of the chain.
func (*filter) ClientInterceptor(_, _ httpfilter.Config) (httpfilter.Interceptor, error) {
	return nil, nil
}
