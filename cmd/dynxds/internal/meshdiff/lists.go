package meshdiff

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/mesh/explain"
)

// element is a message of a list, under the name that it has in both versions of the list.
type element struct {
	key     string
	message proto.Message
}

// elements names the messages of a list. Equal names are counted.
func elements(list []proto.Message) ([]element, map[string]proto.Message) {
	named, byKey := make([]element, len(list)), make(map[string]proto.Message, len(list))
	for i, m := range list {
		name := keyOf(m, i)
		key := name
		for n := 2; byKey[key] != nil; n++ {
			key = fmt.Sprintf("%s #%d", name, n)
		}
		named[i], byKey[key] = element{key, m}, m
	}
	return named, byKey
}

// keyOf returns what distinguishes a message from the others of its list: its conditions, address or name, or
// else its index.
func keyOf(m proto.Message, index int) string {
	switch m := m.(type) {
	case *routepb.Route:
		return explain.Match(m.GetMatch())
	case *routepb.RouteAction_RequestMirrorPolicy:
		return cmp.Or(m.GetCluster(), m.GetClusterHeader())
	case *endpointpb.LocalityLbEndpoints:
		return localityText(m)
	case *endpointpb.LbEndpoint:
		return cmp.Or(addressText(m.GetEndpoint().GetAddress()), strconv.Itoa(index))
	case interface{ GetName() string }:
		return cmp.Or(m.GetName(), strconv.Itoa(index))
	case interface{ GetHeader() *corepb.HeaderValue }:
		return m.GetHeader().GetKey()
	}
	return strconv.Itoa(index)
}

func localityText(m *endpointpb.LocalityLbEndpoints) string {
	l := m.GetLocality()
	name := strings.Trim(l.GetRegion()+"/"+l.GetZone()+"/"+l.GetSubZone(), "/")
	return fmt.Sprintf("%s, priority %d", cmp.Or(name, "no locality"), m.GetPriority())
}

func addressText(a *corepb.Address) string {
	s := a.GetSocketAddress()
	if s == nil {
		return ""
	}
	return net.JoinHostPort(s.GetAddress(), strconv.Itoa(int(s.GetPortValue())))
}

// list compares two lists of messages. The order counts where a client goes through the list.
func (d *differ) list(path, name string, before, after []proto.Message) {
	old, oldByKey := elements(before)
	now, nowByKey := elements(after)
	if hasOneHost(old, now) {
		d.values(path, old[0].message.ProtoReflect(), now[0].message.ProtoReflect())
		return
	}
	ordered := false
	for _, e := range now {
		at := elementPath(path, name, e.key, e.message)
		ordered = ordered || isOrdered(e.message)
		if before := oldByKey[e.key]; before != nil {
			d.element(at, before, e.message)
		} else {
			d.add(at, "", elementText(e.message))
		}
	}
	for _, e := range old {
		if nowByKey[e.key] == nil {
			d.add(elementPath(path, name, e.key, e.message), elementText(e.message), "")
		}
	}
	if ordered {
		d.order(path, name, common(old, nowByKey), common(now, oldByKey))
	}
}

// hasOneHost reports whether two lists have just one virtual host of one name: then paths need not name it.
func hasOneHost(old, now []element) bool {
	if len(old) != 1 || len(now) != 1 || old[0].key != now[0].key {
		return false
	}
	_, ok := old[0].message.(*routepb.VirtualHost)
	return ok
}

// isOrdered reports whether the order of a list of such messages counts.
func isOrdered(m proto.Message) bool {
	switch m.(type) {
	case *routepb.Route, *hcmpb.HttpFilter:
		return true
	}
	return false
}

func common(list []element, others map[string]proto.Message) []element {
	var both []element
	for _, e := range list {
		if others[e.key] != nil {
			both = append(both, e)
		}
	}
	return both
}

// order adds the first element that another one now follows.
func (d *differ) order(path, name string, old, now []element) {
	for i := range now {
		if now[i].key != old[i].key {
			d.fields = append(d.fields, Field{
				Op: Moved, Path: strings.TrimSuffix(elementPath(path, name, now[i].key, now[i].message), ":"),
				After: "before " + strings.TrimSuffix(elementPath("", name, old[i].key, old[i].message), ":"),
			})
			return
		}
	}
}

// elementPath returns the path of an element. Those of routes and endpoints read like sentences.
func elementPath(path, name, key string, m proto.Message) string {
	switch m.(type) {
	case *routepb.Route:
		return child(path, "route "+key+":")
	case *routepb.VirtualHost:
		return child(path, "virtual host "+strconv.Quote(key)+":")
	case *endpointpb.LocalityLbEndpoints:
		return child(path, key+":")
	case *endpointpb.LbEndpoint:
		return child(path, "endpoint "+key+":")
	}
	return child(path, name+"["+key+"]")
}

// elementText describes an element that is only in one list.
func elementText(m proto.Message) string {
	switch m := m.(type) {
	case *routepb.Route:
		to := explain.Clusters(m)
		m = proto.CloneOf(m)
		m.Match, m.Name, m.Metadata = nil, "", nil
		if to == "" {
			return messageText(m)
		}
		withoutWeights(m, &routepb.Route{})
		if proto.Size(m.GetRoute()) == 0 {
			m.Action = nil
		}
		if proto.Size(m) == 0 {
			return "to " + to
		}
		return "to " + to + ", " + messageText(m)
	case *endpointpb.LbEndpoint:
		m = proto.CloneOf(m)
		if e := m.GetEndpoint(); e != nil {
			if e.Address = nil; proto.Size(e) == 0 {
				m.HostIdentifier = nil
			}
		}
		return messageText(m)
	}
	return messageText(m)
}

// element compares two versions of an element.
func (d *differ) element(path string, before, after proto.Message) {
	a, isRoute := before.(*routepb.Route)
	if !isRoute {
		d.values(path, before.ProtoReflect(), after.ProtoReflect())
		return
	}
	b := after.(*routepb.Route)
	if proto.Equal(a, b) {
		return
	}
	d.add(child(path, "clusters"), explain.Clusters(a), explain.Clusters(b))
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	// The match is the key, but for what gRPC ignores of it; the clusters of both are left for what else they say.
	if proto.Equal(a.GetMatch(), b.GetMatch()) {
		a.Match, b.Match = nil, nil
	}
	withoutWeights(a, b)
	for _, pair := range [][2]*routepb.Route{{a, b}, {b, a}} {
		if action := pair[0].GetRoute(); action != nil && proto.Size(action) == 0 && pair[1].GetRoute() == nil {
			pair[0].Action = nil // it was only clusters
		}
	}
	d.message(path, a.ProtoReflect(), b.ProtoReflect())
}

// withoutWeights leaves of the clusters of two routes what both have, and what says more than a name, without the
// weights, which explain.Clusters describes.
func withoutWeights(a, b *routepb.Route) {
	actions := []*routepb.RouteAction{a.GetRoute(), b.GetRoute()}
	named := [2]map[string]bool{{}, {}}
	for i, action := range actions {
		for _, c := range action.GetWeightedClusters().GetClusters() {
			named[i][c.GetName()] = true
		}
	}
	for i, action := range actions {
		if action == nil {
			continue
		}
		weighted := action.GetWeightedClusters()
		var kept []*routepb.WeightedCluster_ClusterWeight
		for _, c := range weighted.GetClusters() {
			c.Weight = nil
			if named[1-i][c.GetName()] || proto.Size(c) > proto.Size(&routepb.WeightedCluster_ClusterWeight{Name: c.GetName()}) {
				kept = append(kept, c)
			}
		}
		if len(kept) == 0 {
			action.ClusterSpecifier = nil
			continue
		}
		weighted.Clusters = kept
	}
}
