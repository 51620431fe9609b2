package xdsresource

import (
	"cmp"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/xdsclient"
)

// Endpoints is a validated ClusterLoadAssignment.
type Endpoints struct {
	// Name is the cluster_name of the resource.
	Name string
	// Localities holds every locality with a weight above 0 and at least one
	// endpoint, in the order of the resource.
	Localities []Locality
	// Drops are the shares of RPCs to fail. Each applies to the RPCs that those before
	// it let pass.
	Drops []Drop
	// Ignored lists fields that the client does not act on, and the localities that are left out as they have no weight. See
	// IgnoredFields.
	Ignored []xdsclient.Ignored
}

// DropsAll reports whether no RPC passes the Drops.
func (e *Endpoints) DropsAll() bool {
	return slices.ContainsFunc(e.Drops, func(d Drop) bool { return d.PerMillion >= Million })
}

// LocalityID identifies a locality.
type LocalityID = load.LocalityID

// Locality is a group of endpoints in one place.
type Locality struct {
	ID LocalityID
	// Priority is 0 for the most preferred localities. There are no gaps: priorities
	// without endpoints are left out, and lower ones move up.
	Priority uint32
	// Weight is at least 1. The weights of one priority fit 32 bits together.
	Weight    uint32
	Endpoints []Endpoint
}

// HealthStatus is the health of an endpoint as the control plane sees it.
type HealthStatus int

// The health statuses, numbered as envoy.config.core.v3.HealthStatus.
const (
	HealthUnknown HealthStatus = iota
	HealthHealthy
	HealthUnhealthy
	HealthDraining
	HealthTimeout
	HealthDegraded
)

// String returns the name that the status has in the proto, or its number.
func (h HealthStatus) String() string { return corepb.HealthStatus(h).String() }

// Usable reports whether an endpoint of this health gets RPCs: HEALTHY and
// UNKNOWN do (gRFC A27).
func (h HealthStatus) Usable() bool { return h == HealthUnknown || h == HealthHealthy }

// Endpoint is one backend.
type Endpoint struct {
	// Address is "host:port", IPv6 in brackets.
	Address string
	// Hostname is the authority for RPCs whose route has AutoHost set (gRFC
	// A81). It may be empty.
	Hostname string
	// Additional are further addresses of the same backend, in order of
	// preference after Address (gRFC A61).
	Additional []string
	// Proxy, unless empty, is the "host:port" of the proxy for connections of a Cluster with
	// HTTPConnect (gRFC A86). The host is an IP address.
	Proxy string
	// HashKey takes the place of Address on the ring of PolicyRingHash (gRFC
	// A76). Empty: none.
	HashKey string
	// Metadata is the envoy.config.core.v3.Metadata of the endpoint in the wire format, for policies
	// of the program's own. Endpoints of a resource with equal ones share it. Empty: none.
	Metadata string
	// Weight is at least 1.
	Weight uint32
	Health HealthStatus
}

// Equal reports whether e and o are the same in everything.
func (e Endpoint) Equal(o Endpoint) bool {
	return e.Address == o.Address && e.Hostname == o.Hostname && e.Proxy == o.Proxy && e.HashKey == o.HashKey &&
		e.Metadata == o.Metadata && e.Weight == o.Weight && e.Health == o.Health && slices.Equal(e.Additional, o.Additional)
}

func readEndpoints(v *validator, raw []byte) *Endpoints {
	head, _ := without(raw, fieldLocalities)
	pb := new(endpointpb.ClusterLoadAssignment)
	if !v.readNamed(head, pb, "cluster_name", pb.GetClusterName) {
		return nil
	}
	return assignmentOf(v, nil, pb, ClusterEDS, raw)
}

// assignmentOf decodes a ClusterLoadAssignment, which is a resource of its own or part of a cluster of the given type, with
// the localities in raw.
func assignmentOf(v *validator, at *faults.Path, pb *endpointpb.ClusterLoadAssignment, kind ClusterKind, raw []byte) *Endpoints {
	d := endpointDecoder{
		validator:  v,
		at:         at,
		kind:       kind,
		weightless: kind != ClusterEDS && !slices.ContainsFunc(pb.GetEndpoints(), hasWeight),
		weights:    make(map[uint32]uint64),
		ids:        make(map[localityKey]int),
		addresses:  make(map[string]position),
		localities: []Locality{},
	}
	list := fields(raw)
	for i := 0; list.nextOf(fieldLocalities); i++ {
		d.add(i, list.value)
	}
	d.checkPriorities()
	closeGaps(d.localities)
	drops := v.drops(at.Field("policy"), pb.GetPolicy().GetDropOverloads())
	return &Endpoints{Name: pb.GetClusterName(), Localities: d.localities, Drops: drops}
}

// endpointDecoder decodes the localities of one ClusterLoadAssignment.
type endpointDecoder struct {
	*validator
	at   *faults.Path
	kind ClusterKind
	// weightless says that no locality of a load_assignment has a weight. Each
	// then weighs as much as its endpoints that get RPCs do, which is how Envoy shares RPCs
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

// add decodes a locality. One that is malformed is an error, and is read without its endpoints.
func (d *endpointDecoder) add(i int, raw []byte) {
	at, pb := d.at.Item("endpoints", i), new(endpointpb.LocalityLbEndpoints)
	rest, count := without(raw, fieldEndpoints)
	d.read(at, rest, pb)
	weight, priority := pb.GetLoadBalancingWeight().GetValue(), pb.GetPriority()
	if weight == 0 && !d.weightless {
		// The locality is not used, and so not validated (gRFC A27).
		if !hasWeight(pb) && count > 0 {
			d.warn(at.Field("load_balancing_weight"), "is not set, so the locality is not used (gRFC A27)")
		}
		d.eachEndpoint(at, raw, count, func(int, *endpointpb.LbEndpoint) {}) // They have to be readable nevertheless.
		return
	}
	d.checkWeight(at, priority, weight)
	in := pb.GetLocality()
	id := LocalityID{Region: d.intern(in.GetRegion()), Zone: d.intern(in.GetZone()), SubZone: d.intern(in.GetSubZone())}
	key := localityKey{id, priority}
	if first, taken := d.ids[key]; taken {
		d.fault(at.Field("locality"), "is the same as that of endpoints[%d], in the same priority %d", first, priority)
	} else {
		d.ids[key] = i
	}
	proxy, endpoints := d.proxy(at, pb), make([]Endpoint, 0, count)
	d.eachEndpoint(at, raw, count, func(n int, pb *endpointpb.LbEndpoint) {
		endpoints = append(endpoints, d.endpoint(at.Item("lb_endpoints", n), position{i, n}, pb, proxy))
	})
	if total := totalWeight(endpoints); total > math.MaxUint32 {
		d.fault(at.Field("lb_endpoints"), "the endpoints have a weight of %d together, more than %d", total, uint32(math.MaxUint32))
	}
	if d.weightless && d.kind == ClusterStatic {
		weight = uint32(min(weightByEndpoints(endpoints), math.MaxUint32))
		d.checkWeight(at, priority, weight)
	}
	if len(endpoints) > 0 {
		d.localities = append(d.localities, Locality{ID: id, Priority: priority, Weight: weight, Endpoints: endpoints})
	}
}

func (d *endpointDecoder) checkWeight(at *faults.Path, priority, weight uint32) {
	sum := d.weights[priority]
	d.weights[priority] = sum + uint64(weight)
	if sum <= math.MaxUint32 && sum+uint64(weight) > math.MaxUint32 {
		d.fault(at.Field("load_balancing_weight"), "the localities of priority %d have a weight of more than %d together",
			priority, uint32(math.MaxUint32))
	}
}

// checkPriorities reports the first priority without a locality although a lower one has
// some.
func (d *endpointDecoder) checkPriorities() {
	for want, priority := range slices.Sorted(maps.Keys(d.weights)) {
		if priority != uint32(want) {
			d.fault(d.at.Field("endpoints"), "no locality has priority %d although one has priority %d; priorities must have no gaps", want, priority)
			return
		}
	}
}

// closeGaps renumbers the priorities so that there are no gaps where one has no endpoints.
func closeGaps(localities []Locality) {
	var used []uint32
	for i := range localities {
		used = append(used, localities[i].Priority)
	}
	slices.Sort(used)
	used = slices.Compact(used)
	for i := range localities {
		n, _ := slices.BinarySearch(used, localities[i].Priority)
		localities[i].Priority = uint32(n)
	}
}

// eachEndpoint calls f for the endpoints of a locality. One that is malformed is an error and left out.
func (d *endpointDecoder) eachEndpoint(at *faults.Path, raw []byte, count int, f func(int, *endpointpb.LbEndpoint)) {
	endpoints := fields(raw)
	var pb endpointpb.LbEndpoint // for the endpoint at hand
	for i := range count {
		endpoints.nextOf(fieldEndpoints)
		if d.read(at.Item("lb_endpoints", i), endpoints.value, &pb) {
			f(i, &pb)
		}
	}
}

func totalWeight(endpoints []Endpoint) uint64 {
	var total uint64
	for i := range endpoints {
		total += uint64(endpoints[i].Weight)
	}
	return total
}

// UsableWeight returns the weight of the endpoints that may get RPCs.
func UsableWeight(endpoints []Endpoint) uint64 {
	var total uint64
	for i := range endpoints {
		if endpoints[i].Health.Usable() {
			total += uint64(endpoints[i].Weight)
		}
	}
	return total
}

// weightByEndpoints returns the weight of a locality that is given none: that of its endpoints that get RPCs, at least 1.
func weightByEndpoints(endpoints []Endpoint) uint64 { return max(1, UsableWeight(endpoints)) }

func (d *endpointDecoder) endpoint(at *faults.Path, pos position, pb *endpointpb.LbEndpoint, localityProxy string) Endpoint {
	e := Endpoint{Weight: 1, Health: HealthStatus(pb.GetHealthStatus()), Proxy: cmp.Or(d.proxy(at, pb), localityProxy)}
	if weight := pb.GetLoadBalancingWeight(); weight != nil {
		if e.Weight = weight.GetValue(); e.Weight == 0 {
			d.fault(at.Field("load_balancing_weight"), "must be at least 1")
		}
	}
	if pb.GetEndpoint() == nil {
		d.fault(at, "host_identifier must be endpoint, is %s", whichOneof(pb, "host_identifier"))
		return e
	}
	if e.Hostname = pb.GetEndpoint().GetHostname(); !isVisible(e.Hostname) {
		d.fault(at.Field("endpoint").Field("hostname"), "%s has a blank or control character in it", faults.Quote(e.Hostname))
	} else if n := len(e.Hostname); n > bounds.Authority {
		d.fault(at.Field("endpoint").Field("hostname"), "has %d bytes, more than the %d of an authority", n, bounds.Authority)
	}
	e.Metadata = d.metadata(pb.GetMetadata())
	e.HashKey = pb.GetMetadata().GetFilterMetadata()["envoy.lb"].GetFields()["hash_key"].GetStringValue()
	at = at.Field("endpoint")
	e.Address = d.address(at.Field("address"), pos, pb.GetEndpoint().GetAddress())
	for i, additional := range pb.GetEndpoint().GetAdditionalAddresses() {
		address := d.address(at.Item("additional_addresses", i).Field("address"), pos, additional.GetAddress())
		e.Additional = append(e.Additional, address)
	}
	return e
}

// address returns an address that no endpoint has yet, or "" after an error.
func (d *endpointDecoder) address(at *faults.Path, pos position, pb *corepb.Address) string {
	address := d.socketAddress(at, d.kind, pb)
	if address == "" {
		return ""
	}
	if first, taken := d.addresses[address]; taken {
		d.fault(at, "%s is already the address of endpoints[%d].lb_endpoints[%d]", faults.Quote(address), first.locality, first.endpoint)
		return ""
	}
	d.addresses[address] = pos
	return address
}

// socketAddress returns "host:port", or "" after an error. The host is an IP address, or a host name, which gRPC-Go resolves when it
// connects. What else it has to be depends on the type of the cluster.
func (v *validator) socketAddress(at *faults.Path, kind ClusterKind, pb *corepb.Address) string {
	socket := pb.GetSocketAddress()
	if socket == nil {
		v.fault(at, "must be socket_address, is %s", whichOneof(pb, "address"))
		return ""
	}
	at = at.Field("socket_address")
	before, host, port := v.faults.Total(), socket.GetAddress(), socket.GetPortValue()
	_, noIP := netip.ParseAddr(host)
	switch {
	case host == "":
		v.fault(at.Field("address"), "must not be empty")
	case noIP != nil && strings.ContainsAny(host, "[]:/%\x00 \t\r\n"):
		v.fault(at.Field("address"), "%s is neither an IP address nor a host name", faults.Quote(host))
	case noIP != nil && kind == ClusterStatic:
		v.fault(at.Field("address"), "%s is not an IP address; clusters of type STRICT_DNS and LOGICAL_DNS take host names", faults.Quote(host))
	}
	if _, ok := socket.GetPortSpecifier().(*corepb.SocketAddress_PortValue); !ok {
		v.fault(at, "port_specifier must be port_value, is %s", whichOneof(socket, "port_specifier"))
	} else if port == 0 || port > math.MaxUint16 {
		v.fault(at.Field("port_value"), "must be from 1 to %d, is %d", math.MaxUint16, port)
	}
	if kind != ClusterEDS && socket.GetResolverName() != "" {
		v.fault(at.Field("resolver_name"), "must be empty, is %s: this client resolves names with DNS", faults.Quote(socket.GetResolverName()))
	}
	if v.faults.Total() > before {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// Million is what Drop.PerMillion is a part of.
const Million = matching.Million

// Drop is one entry of ClusterLoadAssignment.policy.drop_overloads: a share of
// the RPCs that fail at once, to spare the backends.
type Drop struct {
	// Category names the reason.
	Category string
	// PerMillion is from 1 to Million. Entries of 0 are left out.
	PerMillion uint32
}

// drops decodes drop_overloads, in their order. A share above 100% is
// 100% (gRFC A27).
func (v *validator) drops(at *faults.Path, pbs []*endpointpb.ClusterLoadAssignment_Policy_DropOverload) []Drop {
	if !v.atMost(at.Field("drop_overloads"), len(pbs), bounds.Conditions) {
		return nil
	}
	var drops []Drop
	for i, pb := range pbs {
		at := at.Item("drop_overloads", i)
		category, perMillion := v.notEmpty(at.Field("category"), pb.GetCategory()), v.perMillion(at.Field("drop_percentage"), pb.GetDropPercentage())
		if perMillion > 0 {
			drops = append(drops, Drop{category, perMillion})
		}
	}
	return drops
}

const (
	// proxyKey is the key of metadata under which a proxy is found (gRFC A86).
	proxyKey       = "envoy.http11_proxy_transport_socket.proxy_address"
	addressTypeURL = "type.googleapis.com/envoy.config.core.v3.Address"
)

// proxy returns the address of the proxy in the metadata of a locality or an endpoint, "" if
// there is none. An Address has to be valid under any key (gRFC A83, "xDS Cluster Metadata").
func (d *endpointDecoder) proxy(at *faults.Path, of interface{ GetMetadata() *corepb.Metadata }) string {
	metadata := of.GetMetadata().GetTypedFilterMetadata()
	if len(metadata) == 0 {
		return ""
	}
	proxy := ""
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if metadata[key].GetTypeUrl() != addressTypeURL {
			continue // gRFC A86: it is as if the key were not there.
		}
		if address := d.metadataAddress(at.Field("metadata").Field("typed_filter_metadata").Key(key), metadata[key]); key == proxyKey {
			proxy = d.intern(address)
		}
	}
	return proxy
}

// metadataAddress returns "host:port", or "" after an error. The host has to be an IP address.
func (d *endpointDecoder) metadataAddress(at *faults.Path, packed *anypb.Any) string {
	pb := new(corepb.Address)
	if !d.unmarshal(at, packed, addressTypeURL, pb) {
		return ""
	}
	address := d.socketAddress(at, ClusterEDS, pb) // The type of the cluster makes no difference to the address of a proxy.
	host := pb.GetSocketAddress().GetAddress()
	if _, err := netip.ParseAddr(host); address != "" && err != nil {
		d.fault(at.Field("socket_address").Field("address"), "%s is not an IP address", faults.Quote(host))
	}
	return address
}

// metadataKey is the key of the attribute with an endpoint's metadata, in the wire format.
type metadataKey struct{}

// WithMetadata returns e with the Metadata of an Endpoint as an attribute, for policies of the
// program's own.
func WithMetadata(e resolver.Endpoint, wire string) resolver.Endpoint {
	if wire != "" {
		e.Attributes = e.Attributes.WithValue(metadataKey{}, wire)
	}
	return e
}

// MetadataOf returns the metadata that WithMetadata has set, or nil. It decodes it.
func MetadataOf(e resolver.Endpoint) *corepb.Metadata {
	wire, _ := e.Attributes.Value(metadataKey{}).(string)
	if wire == "" {
		return nil
	}
	m := new(corepb.Metadata)
	_ = proto.Unmarshal([]byte(wire), m) // It was encoded from such a message.
	return m
}

// metadata returns m in the wire format, without the places of package provenance: a version in which
// only these differ keeps the old value.
func (d *endpointDecoder) metadata(m *corepb.Metadata) string {
	if _, ok := m.GetFilterMetadata()[provenance.Key]; ok {
		m = proto.CloneOf(m)
		delete(m.FilterMetadata, provenance.Key)
	}
	if len(m.GetFilterMetadata()) == 0 && len(m.GetTypedFilterMetadata()) == 0 {
		return ""
	}
	wire, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m) // It was decoded.
	return d.intern(textIn(wire))
}

// filterMetadata decodes Cluster.metadata for HTTP filters: for each key the typed entry, if its type is known, or else the
// other one (gRFC A83, "xDS Cluster Metadata").
func (d clusterDecoder) filterMetadata(pb *corepb.Metadata) httpfilter.Metadata {
	var m httpfilter.Metadata
	typed := pb.GetTypedFilterMetadata()
	for _, key := range slices.Sorted(maps.Keys(typed)) {
		parser := httpfilter.ParserOf(typed[key].GetTypeUrl())
		if parser == nil {
			continue
		}
		value, err := parser.ParseMetadata(typed[key])
		if err != nil {
			d.fault(faults.Field("metadata").Field("typed_filter_metadata").Key(key), "%v", err)
		}
		m = append(m, httpfilter.MetadataEntry{Key: key, Value: value})
	}
	for _, key := range slices.Sorted(maps.Keys(pb.GetFilterMetadata())) {
		if _, ok := m.Get(key); !ok && key != provenance.Key {
			m = append(m, httpfilter.MetadataEntry{Key: key})
		}
	}
	return m
}
