package explain

import (
	"bytes"
	"encoding/json"
	"errors"

	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/protofield"
	"github.com/dynxds/dynxds/internal/provenance"
)

// rawRoutes are the messages of a Listener and its routes, for what the decoded values do not
// keep: levels, configurations of filters as messages, and the places that they were written at.
type rawRoutes struct {
	listener *listenerpb.Listener
	manager  *hcmpb.HttpConnectionManager
	config   *routepb.RouteConfiguration
	host     int // the index of the virtual host in use
}

// setListener sets the messages of a Listener that was decoded before.
func (r *rawRoutes) setListener(a *anypb.Any) {
	r.listener = read(a, new(listenerpb.Listener))
	r.manager = read(r.listener.GetApiListener().GetApiListener(), new(hcmpb.HttpConnectionManager))
	r.config = r.manager.GetRouteConfig()
}

// read unmarshals a message that was decoded before, so that it cannot fail, and returns it.
func read[M proto.Message](a *anypb.Any, m M) M {
	if err := proto.Unmarshal(a.GetValue(), m); err != nil {
		proto.Reset(m)
	}
	return m
}

func (r *rawRoutes) virtualHost() *routepb.VirtualHost {
	if hosts := r.config.GetVirtualHosts(); r.host < len(hosts) {
		return hosts[r.host]
	}
	return nil
}

func (r *rawRoutes) route(i int) *routepb.Route { return r.virtualHost().GetRoutes()[i] }

// hostAt returns where a virtual host was written.
func (r *rawRoutes) hostAt(i int) string {
	if hosts := r.config.GetVirtualHosts(); i < len(hosts) {
		return provenance.At(hosts[i].GetMetadata(), provenance.Service)
	}
	return ""
}

// routeAt returns where a part of a route was written.
func (r *rawRoutes) routeAt(i int, parts ...string) string {
	return provenance.At(r.route(i).GetMetadata(), append(parts, provenance.Service)...)
}

// weighted returns the clusters of the route's Forward, without those of weight 0.
func (r *rawRoutes) weighted(i int) (list []*routepb.WeightedCluster_ClusterWeight) {
	for _, c := range r.route(i).GetRoute().GetWeightedClusters().GetClusters() {
		if c.GetWeight().GetValue() > 0 {
			list = append(list, c)
		}
	}
	return list
}

// filterConfig returns the configuration of a filter in the Listener.
func (r *rawRoutes) filterConfig(name string) *anypb.Any {
	for _, f := range r.manager.GetHttpFilters() {
		if f.GetName() == name {
			return f.GetTypedConfig()
		}
	}
	return nil
}

// overrideConfig returns the configuration in an entry of typed_per_filter_config.
func overrideConfig(configs map[string]*anypb.Any, name string) *anypb.Any {
	a := configs[name]
	if wrapper := new(routepb.FilterConfig); a.MessageIs(wrapper) {
		return read(a, wrapper).GetConfig()
	}
	return a
}

// asJSON returns the message in an Any as JSON, nil if there is none. Of one of a type that is not
// linked in, or of one with messages in messages without end, it returns the type and the bytes: protojson
// copies a message in an Any once for each Any that it is in.
func asJSON(a *anypb.Any) json.RawMessage {
	if a == nil {
		return nil
	}
	var text []byte
	var m proto.Message
	err := errTooDeep
	if !protofield.Deeper(a.GetValue(), maxDepth) {
		m, err = a.UnmarshalNew()
	}
	if err == nil {
		text, err = protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	}
	if err != nil {
		if text, err = json.Marshal(map[string]any{"@type": a.GetTypeUrl(), "value": a.GetValue()}); err != nil {
			return nil
		}
	}
	return compact(text)
}

// maxDepth is how many messages may be within each other in one that is shown as JSON.
const maxDepth = 100

var errTooDeep = errors.New("the message is too deep")

// compact removes white space, which protojson varies.
func compact(text []byte) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return nil
	}
	return b.Bytes()
}
