package xdsresource

import (
	"slices"
	"time"

	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/xdsclient"
)

// Listener is what gRPC needs of a Listener with an API listener. Exactly one
// of RouteConfigName and RouteConfig is set.
type Listener struct {
	Name string
	// RouteConfigName is the RouteConfiguration to ask for by RDS.
	RouteConfigName string
	// RouteConfig is the RouteConfiguration given inline.
	RouteConfig *RouteConfiguration
	// MaxStreamDuration bounds RPCs whose route does not say otherwise
	// (HttpConnectionManager.common_http_protocol_options). 0: no bound.
	MaxStreamDuration time.Duration
	// Filters is the chain of HTTP filters; the last one is terminal.
	Filters []httpfilter.Instance
	// Ignored lists fields that the client does not act on, and what was left out of the Listener and of RouteConfig, such
	// as optional filters of unknown types. See IgnoredFields.
	Ignored []xdsclient.Ignored
}

const httpConnectionManagerTypeURL = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"

// inListener is the path of the HttpConnectionManager.
var inListener = faults.Field("api_listener").Field("api_listener")

func readListener(v *validator, raw []byte) *Listener {
	head, routes := routesInListener(raw)
	pb := new(listenerpb.Listener)
	if !v.readNamed(head, pb, "name", pb.GetName) {
		return nil
	}
	d := listenerDecoder{validator: v, routes: routes}
	if last, ok := v.last.(*Listener); ok {
		d.lastRoutes = last.RouteConfig
	}
	l := d.listener(pb)
	l.Ignored = v.ignored.list()
	return l
}

// Numbers of fields on the way from a Listener to the RouteConfiguration in it.
const (
	fieldAPIListener   = 19 // Listener.api_listener
	fieldListenerInAPI = 1  // ApiListener.api_listener
	fieldTypeURL       = 1  // Any.type_url
	fieldAnyValue      = 2  // Any.value
	fieldRDS           = 3  // HttpConnectionManager.rds
	fieldRouteConfig   = 4  // HttpConnectionManager.route_config
	fieldScopedRoutes  = 31 // HttpConnectionManager.scoped_routes
)

// routesInListener returns a Listener without the virtual hosts of the RouteConfiguration in it, and the
// RouteConfiguration. There is none if it has to be read as a message, since fields on the way are there more than once.
func routesInListener(listener []byte) (head, routes []byte) {
	path := [...]protowire.Number{fieldAPIListener, fieldListenerInAPI, fieldAnyValue, fieldRouteConfig}
	var around [len(path)][]byte
	part := listener
	for i, number := range path {
		value, once := only(part, number)
		if !once {
			return listener, nil
		}
		around[i], part = part, value
	}
	typeURL, once := only(around[2], fieldTypeURL)
	if !once || string(typeURL) != httpConnectionManagerTypeURL || has(around[3], fieldRDS) || has(around[3], fieldScopedRoutes) {
		return listener, nil // Of the three, the last one on the wire counts.
	}
	head, hosts := without(part, fieldVirtualHosts)
	if hosts < 0 {
		return listener, nil
	}
	for i, number := range slices.Backward(path[:]) {
		rest, n := without(around[i], number)
		if n < 0 {
			return listener, nil
		}
		head = protowire.AppendBytes(protowire.AppendTag(rest, number, protowire.BytesType), head)
	}
	return head, part
}

// listenerDecoder decodes a Listener and its chain of HTTP filters.
type listenerDecoder struct {
	*validator
	// routes is the RouteConfiguration in the Listener, whose virtual hosts the message does not have. nil: it has them.
	routes []byte
	// lastRoutes is the RouteConfiguration in the version before, or nil.
	lastRoutes *RouteConfiguration
}

func (d listenerDecoder) listener(pb *listenerpb.Listener) *Listener {
	l := &Listener{Name: pb.GetName()}
	if pb.GetApiListener() == nil {
		d.fault(faults.Field("api_listener"), "must be set: a client needs an API listener; a Listener with an address and filter_chains is for servers")
		d.filterChains(pb)
		return l
	}
	if hcm := new(hcmpb.HttpConnectionManager); d.unmarshal(inListener, pb.GetApiListener().GetApiListener(), httpConnectionManagerTypeURL, hcm) {
		d.connectionManager(inListener, hcm, l)
	}
	return l
}

// filterChains validates the HTTP filters of a Listener for servers, which is at fault
// already, so that the error lists everything that is wrong.
func (d listenerDecoder) filterChains(pb *listenerpb.Listener) {
	for i, chain := range pb.GetFilterChains() {
		d.networkFilters(faults.Item("filter_chains", i), chain)
	}
	d.networkFilters(faults.Field("default_filter_chain"), pb.GetDefaultFilterChain())
}

func (d listenerDecoder) networkFilters(at *faults.Path, chain *listenerpb.FilterChain) {
	for i, filter := range chain.GetFilters() {
		if filter.GetTypedConfig().GetTypeUrl() != httpConnectionManagerTypeURL {
			continue
		}
		at := at.Item("filters", i).Field("typed_config")
		if hcm := new(hcmpb.HttpConnectionManager); d.unmarshal(at, filter.GetTypedConfig(), httpConnectionManagerTypeURL, hcm) {
			d.httpFilters(at, onServer, hcm.GetHttpFilters())
		}
	}
}

func (d listenerDecoder) connectionManager(at *faults.Path, pb *hcmpb.HttpConnectionManager, l *Listener) {
	// gRFC A41 requires clients, too, to reject these two.
	if n := pb.GetXffNumTrustedHops(); n != 0 {
		d.fault(at.Field("xff_num_trusted_hops"), "must be 0, is %d", n)
	}
	if n := len(pb.GetOriginalIpDetectionExtensions()); n != 0 {
		d.fault(at.Field("original_ip_detection_extensions"), "must be empty, has %d entries", n)
	}
	switch routes := pb.GetRouteSpecifier().(type) {
	case *hcmpb.HttpConnectionManager_Rds:
		rds := at.Field("rds")
		d.adsOrSelf(rds.Field("config_source"), routes.Rds.GetConfigSource())
		if l.RouteConfigName = routes.Rds.GetRouteConfigName(); l.RouteConfigName == "" {
			d.fault(rds.Field("route_config_name"), "must not be empty")
		}
	case *hcmpb.HttpConnectionManager_RouteConfig:
		in := at.Field("route_config")
		if d.routes == nil {
			d.routes, d.noted = marshal(routes.RouteConfig), true
		}
		l.RouteConfig = routeConfigurationAt(d.validator, in, routes.RouteConfig, d.routes, d.lastRoutes, nil)
		d.noted = false
	default:
		d.fault(at, "route_specifier must be rds or route_config, is %s", whichOneof(pb, "route_specifier"))
	}
	options := at.Field("common_http_protocol_options")
	l.MaxStreamDuration = d.duration(options.Field("max_stream_duration"), pb.GetCommonHttpProtocolOptions().GetMaxStreamDuration())
	l.Filters = d.httpFilters(at, onClient, pb.GetHttpFilters())
}
