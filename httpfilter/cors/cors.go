// Package cors registers Envoy's CORS filter, which does nothing: CORS is between browsers
// and servers. If the filter were unknown, a client would reject every RouteConfiguration
// with a CORS policy.
package cors

import (
	corspb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
)

// The types of the filter's configurations.
const (
	typeURL         = "type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors"
	overrideTypeURL = "type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy"
)

func init() { httpfilter.Register(filter{}) }

type filter struct{}

func (filter) TypeURLs() []string { return []string{typeURL, overrideTypeURL} }

func (filter) IsTerminal() bool { return false }

func (filter) RunsOnServers() {}

func (filter) ParseConfig(config *anypb.Any) (httpfilter.Config, error) {
	return nil, httpfilter.UnmarshalConfig(config, new(corspb.Cors))
}

func (filter) ParseOverride(override *anypb.Any) (httpfilter.Config, error) {
	return nil, httpfilter.UnmarshalConfig(override, new(corspb.CorsPolicy))
}

func (f filter) NewClientInstance(httpfilter.ClientInstanceInfo) httpfilter.ClientInstance { return f }

// ClientInterceptor leaves the filter out of the chain.
func (filter) ClientInterceptor(_, _ httpfilter.Config) (httpfilter.Interceptor, error) {
	return nil, nil
}
