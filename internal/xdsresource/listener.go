package xdsresource

import (
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/xdsclient"
)

const httpConnectionManagerTypeURL = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"

func decodeListener(resource *anypb.Any, o xdsclient.DecodeOptions) (string, any, error) {
	return decode(resource, o, typeurl.Listener, new(listenerpb.Listener), "name",
		(*listenerpb.Listener).GetName, (*validator).listener)
}

func (v *validator) listener(pb *listenerpb.Listener) *Listener {
	l := &Listener{Name: pb.GetName()}
	at := (*path)(nil).field("api_listener")
	if pb.GetApiListener() == nil {
		v.fault(at, "must be set: a client needs an API listener; a Listener with an address and filter_chains is for servers")
		v.filterChains(pb)
		return l
	}
	at = at.field("api_listener")
	hcm := new(hcmpb.HttpConnectionManager)
	if v.unmarshal(at, pb.GetApiListener().GetApiListener(), httpConnectionManagerTypeURL, hcm) {
		v.connectionManager(at, hcm, l)
	}
	l.Ignored = v.ignored.list()
	return l
}

// filterChains validates the HTTP filters of a Listener for servers, so that
// whoever mixed the two up hears of all that is wrong.
func (v *validator) filterChains(pb *listenerpb.Listener) {
	for i, chain := range pb.GetFilterChains() {
		v.networkFilters((*path)(nil).item("filter_chains", i), chain)
	}
	v.networkFilters((*path)(nil).field("default_filter_chain"), pb.GetDefaultFilterChain())
}

func (v *validator) networkFilters(at *path, chain *listenerpb.FilterChain) {
	for i, filter := range chain.GetFilters() {
		if filter.GetTypedConfig().GetTypeUrl() != httpConnectionManagerTypeURL {
			continue
		}
		at := at.item("filters", i).field("typed_config")
		hcm := new(hcmpb.HttpConnectionManager)
		if v.unmarshal(at, filter.GetTypedConfig(), httpConnectionManagerTypeURL, hcm) {
			v.httpFilters(at, onServer, hcm.GetHttpFilters())
		}
	}
}

func (v *validator) connectionManager(at *path, pb *hcmpb.HttpConnectionManager, l *Listener) {
	// gRFC A41 has these two rejected on clients as well.
	if n := pb.GetXffNumTrustedHops(); n != 0 {
		v.fault(at.field("xff_num_trusted_hops"), "must be 0, is %d", n)
	}
	if n := len(pb.GetOriginalIpDetectionExtensions()); n != 0 {
		v.fault(at.field("original_ip_detection_extensions"), "must be empty, has %d entries", n)
	}
	switch routes := pb.GetRouteSpecifier().(type) {
	case *hcmpb.HttpConnectionManager_Rds:
		rds := at.field("rds")
		v.adsOrSelf(rds.field("config_source"), routes.Rds.GetConfigSource())
		if l.RouteConfigName = routes.Rds.GetRouteConfigName(); l.RouteConfigName == "" {
			v.fault(rds.field("route_config_name"), "must not be empty")
		}
	case *hcmpb.HttpConnectionManager_RouteConfig:
		l.RouteConfig = v.routeConfigurationAt(at.field("route_config"), routes.RouteConfig)
	default:
		v.fault(at, "route_specifier must be rds or route_config, is %s", whichOneof(pb, "route_specifier"))
	}
	options := at.field("common_http_protocol_options")
	l.MaxStreamDuration = v.duration(options.field("max_stream_duration"), pb.GetCommonHttpProtocolOptions().GetMaxStreamDuration())
	l.Filters = v.httpFilters(at, onClient, pb.GetHttpFilters())
}
