package xdsresource

import (
	"bytes"
	"slices"
	"time"

	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

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
	pb := new(listenerpb.Listener)
	if !v.readNamed(raw, pb, "name", pb.GetName) {
		return nil
	}
	l := &Listener{Name: pb.GetName()}
	if pb.GetApiListener() == nil {
		v.fault(faults.Field("api_listener"), "must be set: a client needs an API listener; a Listener with an address and filter_chains is for servers")
		return l
	}
	packed := pb.GetApiListener().GetApiListener()
	value := packed.GetValue()
	if i := bytes.Index(raw, value); i >= 0 { // Routes refer to bytes that are kept anyway, and not to a copy.
		value = raw[i : i+len(value)]
	}
	manager, routes := routesInManager(value)
	if hcm := new(hcmpb.HttpConnectionManager); v.hasType(inListener, packed, httpConnectionManagerTypeURL) && v.read(inListener, manager, hcm) {
		v.connectionManager(inListener, hcm, routes, l)
	}
	return l
}

// routesInManager returns an HttpConnectionManager without the RouteConfiguration in it, and that, which is nil if another source of routes
// comes after it: of several, the last on the wire counts.
func routesInManager(raw []byte) (manager, routes []byte) {
	var others, inside joined
	f := fields(raw)
	for f.next() {
		switch {
		case f.is(fieldRouteConfig):
			inside.add(f.value)
			continue
		case f.is(fieldRDS), f.is(fieldScopedRoutes):
			inside = joined{}
		}
		others.add(f.whole)
	}
	if f.broken {
		return raw, nil
	}
	return slices.Clip(others.bytes), inside.bytes
}

// connectionManager decodes an HttpConnectionManager. routes is the RouteConfiguration in it, which the message does not have. nil: there
// is none.
func (d *validator) connectionManager(at *faults.Path, pb *hcmpb.HttpConnectionManager, routes []byte, l *Listener) {
	// gRFC A41 requires clients, too, to reject these two.
	if n := pb.GetXffNumTrustedHops(); n != 0 {
		d.fault(at.Field("xff_num_trusted_hops"), "must be 0, is %d", n)
	}
	if n := len(pb.GetOriginalIpDetectionExtensions()); n != 0 {
		d.fault(at.Field("original_ip_detection_extensions"), "must be empty, has %d entries", n)
	}
	switch rds := pb.GetRds(); {
	case routes != nil:
		at, config := at.Field("route_config"), new(routepb.RouteConfiguration)
		if head, _ := without(routes, fieldVirtualHosts); d.read(at, head, config) {
			var before *RouteConfiguration
			if last, ok := d.Last.(*Listener); ok {
				before = last.RouteConfig
			}
			l.RouteConfig = routeConfigurationAt(d, at, config, head, routes, before)
		}
	case rds != nil:
		at := at.Field("rds")
		d.adsOrSelf(at.Field("config_source"), rds.GetConfigSource())
		l.RouteConfigName = d.notEmpty(at.Field("route_config_name"), rds.GetRouteConfigName())
	default:
		d.fault(at, "route_specifier must be rds or route_config, is %s", whichOneof(pb, "route_specifier"))
	}
	options := at.Field("common_http_protocol_options")
	l.MaxStreamDuration = d.duration(options.Field("max_stream_duration"), pb.GetCommonHttpProtocolOptions().GetMaxStreamDuration())
	l.Filters = d.httpFilters(at, pb.GetHttpFilters())
}
