package xdsresource

import (
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/xdsclient"
)

func decodeEndpoints(resource *anypb.Any, o xdsclient.DecodeOptions) (string, any, error) {
	return decode(resource, o, typeurl.Endpoints, new(endpointpb.ClusterLoadAssignment), "cluster_name",
		(*endpointpb.ClusterLoadAssignment).GetClusterName, (*validator).endpoints)
}

func (v *validator) endpoints(pb *endpointpb.ClusterLoadAssignment) *Endpoints {
	return v.assignment(nil, pb, ClusterEDS)
}

// assignment decodes the ClusterLoadAssignment of a cluster of the given type.
func (v *validator) assignment(at *path, pb *endpointpb.ClusterLoadAssignment, kind ClusterKind) *Endpoints {
	l := localities{
		v:          v,
		at:         at,
		kind:       kind,
		weightless: kind != ClusterEDS && !slices.ContainsFunc(pb.GetEndpoints(), hasWeight),
		weights:    make(map[uint32]uint64),
		ids:        make(map[localityKey]int),
		addresses:  make(map[string]position),
		localities: make([]Locality, 0, len(pb.GetEndpoints())),
	}
	for i, locality := range pb.GetEndpoints() {
		l.add(i, locality)
	}
	l.checkPriorities()
	closeGaps(l.localities)
	drops := v.drops(at.field("policy"), pb.GetPolicy().GetDropOverloads())
	return &Endpoints{Name: pb.GetClusterName(), Localities: l.localities, Drops: drops}
}

// localities decodes the localities of one ClusterLoadAssignment.
type localities struct {
	v    *validator
	at   *path
	kind ClusterKind
	// weightless says that no locality of a load_assignment has a weight. Each
	// then weighs as much as its endpoints do, which is how Envoy shares RPCs
	// among endpoints if localities are not to matter.
	weightless bool
	// weights has the sum of the locality weights of each priority.
	weights map[uint32]uint64
	// ids has the index of each locality.
	ids map[localityKey]int
	// addresses has the place of each endpoint.
	addresses  map[string]position
	localities []Locality
}

type localityKey struct {
	id       LocalityID
	priority uint32
}

type position struct{ locality, endpoint int }

func hasWeight(pb *endpointpb.LocalityLbEndpoints) bool { return pb.GetLoadBalancingWeight() != nil }

func (l *localities) add(i int, pb *endpointpb.LocalityLbEndpoints) {
	at := l.at.item("endpoints", i)
	weight, priority := pb.GetLoadBalancingWeight().GetValue(), pb.GetPriority()
	named := pb.GetLocality() != nil || l.kind != ClusterEDS
	if !named {
		l.v.fault(at.field("locality"), "must be set")
	}
	if weight == 0 && !l.weightless {
		return // Not to be used, and so not looked into (gRFC A27).
	}
	l.checkWeight(at, priority, weight)
	id := l.v.localityID(pb.GetLocality())
	key := localityKey{id, priority}
	if first, taken := l.ids[key]; taken && named {
		l.v.fault(at.field("locality"), "is the same as that of endpoints[%d], in the same priority %d", first, priority)
	} else {
		l.ids[key] = i
	}
	endpoints := l.endpoints(at, i, pb.GetLbEndpoints())
	if l.weightless && l.kind == ClusterStatic {
		weight = uint32(min(totalWeight(endpoints), math.MaxUint32))
		l.checkWeight(at, priority, weight)
	}
	if len(endpoints) > 0 {
		l.localities = append(l.localities, Locality{ID: id, Priority: priority, Weight: weight, Endpoints: endpoints})
	}
}

func (l *localities) checkWeight(at *path, priority, weight uint32) {
	sum := l.weights[priority]
	l.weights[priority] = sum + uint64(weight)
	if sum <= math.MaxUint32 && sum+uint64(weight) > math.MaxUint32 {
		l.v.fault(at.field("load_balancing_weight"), "the localities of priority %d have a weight of more than %d together",
			priority, uint32(math.MaxUint32))
	}
}

func (v *validator) localityID(pb *corepb.Locality) LocalityID {
	return LocalityID{
		Region:  v.intern(pb.GetRegion()),
		Zone:    v.intern(pb.GetZone()),
		SubZone: v.intern(pb.GetSubZone()),
	}
}

// checkPriorities finds a priority that no locality has although a later one
// is in use.
func (l *localities) checkPriorities() {
	for want, priority := range slices.Sorted(maps.Keys(l.weights)) {
		if priority != uint32(want) {
			l.v.fault(l.at.field("endpoints"), "no locality has priority %d although one has priority %d; priorities must have no gaps", want, priority)
			return
		}
	}
}

// closeGaps renumbers the priorities, so that one without an endpoint leaves
// no gap.
func closeGaps(localities []Locality) {
	number := make(map[uint32]uint32)
	for i := range localities {
		number[localities[i].Priority] = 0
	}
	for to, from := range slices.Sorted(maps.Keys(number)) {
		number[from] = uint32(to)
	}
	for i := range localities {
		localities[i].Priority = number[localities[i].Priority]
	}
}

func (l *localities) endpoints(at *path, locality int, pbs []*endpointpb.LbEndpoint) []Endpoint {
	endpoints := make([]Endpoint, 0, len(pbs))
	for i, pb := range pbs {
		endpoints = append(endpoints, l.endpoint(at.item("lb_endpoints", i), position{locality, i}, pb))
	}
	if total := totalWeight(endpoints); total > math.MaxUint32 {
		l.v.fault(at.field("lb_endpoints"), "the endpoints have a weight of %d together, more than %d", total, uint32(math.MaxUint32))
	}
	return endpoints
}

func totalWeight(endpoints []Endpoint) uint64 {
	var total uint64
	for i := range endpoints {
		total += uint64(endpoints[i].Weight)
	}
	return total
}

func (l *localities) endpoint(at *path, pos position, pb *endpointpb.LbEndpoint) Endpoint {
	e := Endpoint{Weight: 1, Health: HealthStatus(pb.GetHealthStatus())}
	if weight := pb.GetLoadBalancingWeight(); weight != nil {
		if e.Weight = weight.GetValue(); e.Weight == 0 {
			l.v.fault(at.field("load_balancing_weight"), "must be at least 1")
		}
	}
	if pb.GetEndpoint() == nil {
		l.v.fault(at, "host_identifier must be endpoint, is %s", whichOneof(pb, "host_identifier"))
		return e
	}
	if e.Hostname = pb.GetEndpoint().GetHostname(); !isVisible(e.Hostname) {
		l.v.fault(at.field("endpoint").field("hostname"), "%s has a blank or control character in it", quote(e.Hostname))
	}
	e.HashKey = pb.GetMetadata().GetFilterMetadata()["envoy.lb"].GetFields()["hash_key"].GetStringValue()
	at = at.field("endpoint")
	e.Address = l.address(at.field("address"), pos, pb.GetEndpoint().GetAddress())
	for i, additional := range pb.GetEndpoint().GetAdditionalAddresses() {
		address := l.address(at.item("additional_addresses", i).field("address"), pos, additional.GetAddress())
		e.Additional = append(e.Additional, address)
	}
	return e
}

// address returns an address that no endpoint has yet, or "" after a fault.
func (l *localities) address(at *path, pos position, pb *corepb.Address) string {
	address := l.v.address(at, pb, l.kind)
	if address == "" {
		return ""
	}
	if first, taken := l.addresses[address]; taken {
		l.v.fault(at, "%s is already the address of endpoints[%d].lb_endpoints[%d]", quote(address), first.locality, first.endpoint)
		return ""
	}
	l.addresses[address] = pos
	return address
}

// address returns "host:port", or "" after a fault, for an address in a cluster
// of the given type.
func (v *validator) address(at *path, pb *corepb.Address, kind ClusterKind) string {
	socket := pb.GetSocketAddress()
	if socket == nil {
		v.fault(at, "must be socket_address, is %s", whichOneof(pb, "address"))
		return ""
	}
	at = at.field("socket_address")
	hostOK, portOK := v.checkHost(at.field("address"), socket.GetAddress()), v.checkPort(at, socket)
	if kind != ClusterEDS && socket.GetResolverName() != "" {
		v.fault(at.field("resolver_name"), "must be empty, is %s: this client resolves names with DNS", quote(socket.GetResolverName()))
	}
	if !hostOK || !portOK {
		return ""
	}
	if _, err := netip.ParseAddr(socket.GetAddress()); kind == ClusterStatic && err != nil {
		v.fault(at.field("address"), "%s is not an IP address; clusters of type STRICT_DNS and LOGICAL_DNS take host names", quote(socket.GetAddress()))
		return ""
	}
	return net.JoinHostPort(socket.GetAddress(), strconv.Itoa(int(socket.GetPortValue())))
}

// checkHost lets IP addresses pass, and names, which gRPC-Go resolves when it
// connects.
func (v *validator) checkHost(at *path, host string) bool {
	if host == "" {
		v.fault(at, "must not be empty")
		return false
	}
	if !strings.ContainsAny(host, "[]:/%\x00 \t\r\n") {
		return true
	}
	if _, err := netip.ParseAddr(host); err != nil {
		v.fault(at, "%s is neither an IP address nor a host name", quote(host))
		return false
	}
	return true
}

func (v *validator) checkPort(at *path, pb *corepb.SocketAddress) bool {
	if _, ok := pb.GetPortSpecifier().(*corepb.SocketAddress_PortValue); !ok {
		v.fault(at, "port_specifier must be port_value, is %s", whichOneof(pb, "port_specifier"))
		return false
	}
	if port := pb.GetPortValue(); port == 0 || port > math.MaxUint16 {
		v.fault(at.field("port_value"), "must be from 1 to %d, is %d", math.MaxUint16, port)
		return false
	}
	return true
}
