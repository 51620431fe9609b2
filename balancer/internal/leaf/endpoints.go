package leaf

import (
	"slices"

	"google.golang.org/grpc/experimental/balancer/weight"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/clustertls"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Usable reports whether any of the endpoints may get RPCs.
func Usable(endpoints []xdsresource.Endpoint) bool {
	return slices.ContainsFunc(endpoints, func(e xdsresource.Endpoint) bool { return e.Health.Usable() })
}

// resolverEndpoints returns the usable endpoints in gRPC's form, with their weights. Endpoints
// with the same attributes share them, and those with one address share an array of addresses, so that 10,000
// endpoints are a few allocations. The bundle, which may be nil, is that of their connections. If
// custom is set, the policy may read the endpoints' metadata.
func resolverEndpoints(endpoints []xdsresource.Endpoint, bundle *clustertls.Bundle, custom bool) []resolver.Endpoint {
	type attributes struct {
		weight   uint32
		metadata string
	}
	result := make([]resolver.Endpoint, 0, len(endpoints))
	addresses := make([]resolver.Address, 0, len(endpoints))
	alike := make(map[attributes]resolver.Endpoint, 1)
	for i := range endpoints {
		e := &endpoints[i]
		if !e.Health.Usable() {
			continue
		}
		with := attributes{weight: e.Weight}
		if custom {
			with.metadata = e.Metadata
		}
		endpoint, ok := alike[with]
		if !ok {
			endpoint = weight.Set(endpoint, weight.EndpointInfo{Weight: with.weight})
			endpoint = xdsresource.WithMetadata(endpoint, with.metadata)
			alike[with] = endpoint
		}
		first := len(addresses)
		addresses = append(addresses, bundle.Address(e.Address, e.Hostname, e.Proxy))
		for _, additional := range e.Additional {
			addresses = append(addresses, bundle.Address(additional, e.Hostname, e.Proxy))
		}
		endpoint.Addresses = addresses[first:len(addresses):len(addresses)]
		result = append(result, endpoint)
	}
	return result
}

// flattened returns the addresses of the endpoints with their attributes, for policies that do not know
// endpoints: gRPC fills in only the endpoints of resolvers that have addresses, not the converse.
func flattened(endpoints []resolver.Endpoint) []resolver.Address {
	addresses := make([]resolver.Address, 0, len(endpoints))
	for _, e := range endpoints {
		for _, a := range e.Addresses {
			//lint:ignore SA1019 It is where policies look that do not know endpoints.
			a.BalancerAttributes = e.Attributes
			addresses = append(addresses, a)
		}
	}
	return addresses
}
