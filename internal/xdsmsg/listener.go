package xdsmsg

import (
	"slices"

	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
)

// DefaultListener is a Listener with an API listener that takes its routes from
// the RouteConfiguration of the given name. The router filter is appended to
// filters.
func DefaultListener(name, routeConfigName string, filters ...*hcmpb.HttpFilter) *listenerpb.Listener {
	return APIListener(name, &hcmpb.HttpConnectionManager{
		RouteSpecifier: &hcmpb.HttpConnectionManager_Rds{
			Rds: &hcmpb.Rds{ConfigSource: ADS(), RouteConfigName: routeConfigName},
		},
		HttpFilters: withRouter(filters),
	})
}

// InlineListener is a Listener with an API listener that carries its routes.
// The router filter is appended to filters.
func InlineListener(name string, routes *routepb.RouteConfiguration, filters ...*hcmpb.HttpFilter) *listenerpb.Listener {
	return APIListener(name, &hcmpb.HttpConnectionManager{
		RouteSpecifier: &hcmpb.HttpConnectionManager_RouteConfig{RouteConfig: routes},
		HttpFilters:    withRouter(filters),
	})
}

// APIListener is a Listener around a connection manager of the caller's making,
// which is packed as it is.
func APIListener(name string, manager *hcmpb.HttpConnectionManager) *listenerpb.Listener {
	return &listenerpb.Listener{
		Name:        name,
		ApiListener: &listenerpb.ApiListener{ApiListener: Any(manager)},
	}
}

// withRouter leaves the caller's slice alone, which append might not.
func withRouter(filters []*hcmpb.HttpFilter) []*hcmpb.HttpFilter {
	return slices.Concat(filters, []*hcmpb.HttpFilter{Router()})
}

// Router is the terminal router filter, named "router".
func Router() *hcmpb.HttpFilter { return Filter("router", &routerpb.Router{}) }

// Filter is an HTTP filter of the given instance name and configuration.
func Filter(name string, config proto.Message) *hcmpb.HttpFilter {
	return &hcmpb.HttpFilter{
		Name:       name,
		ConfigType: &hcmpb.HttpFilter_TypedConfig{TypedConfig: Any(config)},
	}
}
