package folder

import (
	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	sessionpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	cookiepb "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/cookie/v3"
	headerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/header/v3"
	httppb "github.com/envoyproxy/go-control-plane/envoy/type/http/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// readSessionAffinity reads how RPCs identify their session (gRFC A55, and Envoy's sessions by header):
//
//	sessionAffinity:
//	  cookie: {name: session, path: /shop.Cart, ttl: 1h}
//	  statuses: [Healthy, Draining]
//
// or {header: x-session}.
func readSessionAffinity(v document.Value, s *meshroute.Service, cluster *clusterpb.Cluster) {
	if !v.Present() {
		return
	}
	o := v.Object("cookie", "header", "statuses")
	cookie, header := o.Field("cookie"), o.Field("header")
	var state proto.Message
	switch {
	case cookie.Present() == header.Present():
		if o.IsObject() {
			o.Fault("write {cookie: {name: NAME}} or {header: NAME}", "a session is identified by a cookie or by a header")
		}
		return
	case cookie.Present():
		c := cookie.Object("name", "path", "ttl")
		name := meshpolicy.ReadCookieName(c.Require("name"))
		state = &cookiepb.CookieBasedSessionState{Cookie: &httppb.Cookie{
			Name: name, Path: meshpolicy.ReadCookiePath(c.Field("path")), Ttl: readDuration(c.Field("ttl")),
		}}
	default:
		state = &headerpb.HeaderBasedSessionState{Name: meshpolicy.ReadSessionHeader(header)}
	}
	if len(s.Filters) == 0 {
		s.FiltersSource = source(v)
	}
	// A client without the filter does without sessions.
	filter := extension(&sessionpb.StatefulSession{SessionState: extension(state)})
	s.Filters = append(s.Filters, &hcmpb.HttpFilter{
		Name: filter.Name, IsOptional: true, ConfigType: &hcmpb.HttpFilter_TypedConfig{TypedConfig: filter.TypedConfig},
	})
	list := o.Field("statuses")
	if !list.Present() {
		return
	}
	set := &corepb.HealthStatusSet{}
	for _, item := range list.Items() {
		set.Statuses = append(set.Statuses, readHealth(item, "Unknown", "Healthy", "Draining"))
	}
	commonOf(cluster).OverrideHostStatus = set
}
