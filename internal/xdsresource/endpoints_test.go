package xdsresource

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdstest"
)

func tcp(host string, port uint32) *corepb.Address {
	return &corepb.Address{Address: &corepb.Address_SocketAddress{SocketAddress: &corepb.SocketAddress{
		Address: host, PortSpecifier: &corepb.SocketAddress_PortValue{PortValue: port},
	}}}
}

func lbEndpoint(address *corepb.Address) *endpointpb.LbEndpoint {
	return &endpointpb.LbEndpoint{HostIdentifier: &endpointpb.LbEndpoint_Endpoint{Endpoint: &endpointpb.Endpoint{Address: address}}}
}

func host(h string) *endpointpb.LbEndpoint { return lbEndpoint(tcp(h, 80)) }

func withWeight(e *endpointpb.LbEndpoint, weight uint32) *endpointpb.LbEndpoint {
	e.LoadBalancingWeight = wrapperspb.UInt32(weight)
	return e
}

func locality(zone string, priority, weight uint32, endpoints ...*endpointpb.LbEndpoint) *endpointpb.LocalityLbEndpoints {
	return &endpointpb.LocalityLbEndpoints{
		Locality:            &corepb.Locality{Region: "r", Zone: zone, SubZone: "s"},
		Priority:            priority,
		LoadBalancingWeight: wrapperspb.UInt32(weight),
		LbEndpoints:         endpoints,
	}
}

func assignment(localities ...*endpointpb.LocalityLbEndpoints) *endpointpb.ClusterLoadAssignment {
	return &endpointpb.ClusterLoadAssignment{ClusterName: "svc", Endpoints: localities}
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	draining := withWeight(host("::1"), 7)
	draining.HealthStatus = corepb.HealthStatus_DRAINING
	healthy := lbEndpoint(tcp("backend.example.com", 65535))
	healthy.HealthStatus = corepb.HealthStatus_HEALTHY
	id := func(zone string) LocalityID { return LocalityID{Region: "r", Zone: zone, SubZone: "s"} }
	one := func(h string) []Endpoint { return []Endpoint{{Address: h + ":80", Weight: 1}} }
	unweighted := locality("none", 0, 0, host("9.9.9.9"))
	unweighted.LoadBalancingWeight = nil
	nameless := locality("", 0, 1, host("1"))
	nameless.Locality = nil
	for _, tc := range []struct {
		given    string
		resource *endpointpb.ClusterLoadAssignment
		want     []Locality
	}{
		{"nothing", assignment(), []Locality{}},
		{
			"addresses, weights, health",
			assignment(locality("z", 0, 3, host("10.0.0.1"), draining, healthy)),
			[]Locality{{ID: id("z"), Weight: 3, Endpoints: []Endpoint{
				{Address: "10.0.0.1:80", Weight: 1, Health: HealthUnknown},
				{Address: "[::1]:80", Weight: 7, Health: HealthDraining},
				{Address: "backend.example.com:65535", Weight: 1, Health: HealthHealthy},
			}}},
		}, {
			"priorities in any order, and one locality in two of them",
			assignment(locality("a", 1, 1, host("1")), locality("a", 0, 2, host("2")), locality("b", 1, math.MaxUint32-1, host("3"))),
			[]Locality{
				{ID: id("a"), Priority: 1, Weight: 1, Endpoints: one("1")},
				{ID: id("a"), Priority: 0, Weight: 2, Endpoints: one("2")},
				{ID: id("b"), Priority: 1, Weight: math.MaxUint32 - 1, Endpoints: one("3")},
			},
		}, {
			"localities without weight, however wrong else (gRFC A27)",
			assignment(unweighted, locality("a", 9, 0, &endpointpb.LbEndpoint{}), locality("a", 0, 1, host("9.9.9.9"))),
			[]Locality{{ID: id("a"), Weight: 1, Endpoints: one("9.9.9.9")}},
		}, {
			"a priority without an endpoint",
			assignment(locality("a", 0, 1), locality("b", 1, 1, host("1")), locality("c", 2, 1), locality("d", 3, 1, host("2"))),
			[]Locality{
				{ID: id("b"), Priority: 0, Weight: 1, Endpoints: one("1")},
				{ID: id("d"), Priority: 1, Weight: 1, Endpoints: one("2")},
			},
		}, {
			"a locality without a name, as Istio, Kuma, Consul and Envoy Gateway send it",
			assignment(nameless, locality("a", 0, 1, host("2"))),
			[]Locality{{Weight: 1, Endpoints: one("1")}, {ID: id("a"), Weight: 1, Endpoints: one("2")}},
		}, {
			"an empty locality beside another of its priority",
			assignment(locality("a", 0, 1), locality("b", 0, 1, host("1"))),
			[]Locality{{ID: id("b"), Weight: 1, Endpoints: one("1")}},
		},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			got := mustDecode[Endpoints](t, EndpointsType, tc.resource)
			for _, i := range got.Ignored { // A locality that is left out is reported.
				xdstest.Equal(t, "Ignored", "warning endpoints[0].load_balancing_weight: is not set, so the locality is not used (gRFC A27)", i.Severity.String()+" "+i.String())
			}
			if reported := len(got.Ignored) > 0; reported != slices.Contains(tc.resource.Endpoints, unweighted) {
				t.Errorf("ignored: %v", got.Ignored)
			}
			got.Ignored = nil
			xdstest.Equal(t, "Endpoints", &Endpoints{Name: "svc", Localities: tc.want}, got)
		})
	}
}

// gRFC A27: HEALTHY and UNKNOWN get RPCs.
func TestHealthStatus(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pb     corepb.HealthStatus
		want   HealthStatus
		usable bool
	}{
		{corepb.HealthStatus_UNKNOWN, HealthUnknown, true},
		{corepb.HealthStatus_HEALTHY, HealthHealthy, true},
		{corepb.HealthStatus_UNHEALTHY, HealthUnhealthy, false},
		{corepb.HealthStatus_DRAINING, HealthDraining, false},
		{corepb.HealthStatus_TIMEOUT, HealthTimeout, false},
		{corepb.HealthStatus_DEGRADED, HealthDegraded, false},
		{99, 99, false},
	} {
		xdstest.Parallel(t, tc.pb.String(), func(t *testing.T) {
			e := host("a")
			e.HealthStatus = tc.pb
			got := mustDecode[Endpoints](t, EndpointsType, assignment(locality("z", 0, 1, e))).Localities[0].Endpoints[0].Health
			if got != tc.want || got.Usable() != tc.usable {
				t.Errorf("Health, Usable = %v, %v, want %v, %v", got, got.Usable(), tc.want, tc.usable)
			}
		})
	}
}

func TestEndpointsFaults(t *testing.T) {
	t.Parallel()
	const priority0 = "is the same as that of endpoints[0], in the same priority 0"
	whole := func(t testing.TB, fields string) *endpointpb.ClusterLoadAssignment {
		return withText(t, assignment(), fields)
	}
	weighing := func(zone string, priority, weight uint32) string {
		return fmt.Sprintf(`endpoints{locality{zone:%q} priority:%d load_balancing_weight{value:%d}}`, zone, priority, weight)
	}
	checkTextFaults(t, EndpointsType, "", whole, []textCase{
		{"localities without an ID",
			`endpoints{load_balancing_weight{value:1}} endpoints{load_balancing_weight{value:1}} endpoints{load_balancing_weight{}}`,
			"endpoints[1].locality: " + priority0},
		{"one locality twice in a priority", weighing("a", 0, 1) + weighing("b", 0, 1) + weighing("a", 0, 1),
			"endpoints[2].locality: " + priority0},
		{"locality weights that overflow",
			weighing("a", 0, math.MaxUint32) + weighing("b", 0, 1) + weighing("c", 0, 1) + weighing("d", 1, 1),
			"endpoints[1].load_balancing_weight: the localities of priority 0 have a weight of more than 4294967295 together"},
		{"a gap in the priorities", weighing("a", 0, 1) + weighing("b", 3, 1) + weighing("c", 5, 1),
			"endpoints: no locality has priority 1 although one has priority 3; priorities must have no gaps"},
		{"no priority 0", weighing("a", math.MaxUint32, 1),
			"endpoints: no locality has priority 0 although one has priority 4294967295; priorities must have no gaps"},
	})
	one := func(t testing.TB, fields string) *endpointpb.ClusterLoadAssignment {
		return assignment(locality("z", 0, 1, withText(t, &endpointpb.LbEndpoint{}, fields)))
	}
	const socket = "@.endpoint.address.socket_address"
	badHost := func(host string) textCase {
		return textCase{"the host " + host, `endpoint{address{socket_address{address:"` + host + `" port_value:80}}}`,
			socket + `.address: "` + host + `" is neither an IP address nor a host name`}
	}
	checkTextFaults(t, EndpointsType, "endpoints[0].lb_endpoints[0]", one, []textCase{
		{"an endpoint of weight 0", `endpoint{address{socket_address{address:"a" port_value:80}}} load_balancing_weight{}`,
			"@.load_balancing_weight: must be at least 1"},
		{"no endpoint", ``, "@: host_identifier must be endpoint, is not set"},
		{"a named endpoint", `endpoint_name:"n"`, "@: host_identifier must be endpoint, is endpoint_name"},
		{"no address", `endpoint{}`, "@.endpoint.address: must be socket_address, is not set"},
		{"a pipe", `endpoint{address{pipe{path:"/p"}}}`, "@.endpoint.address: must be socket_address, is pipe"},
		{"a named port and no host", `endpoint{address{socket_address{named_port:"http"}}}`,
			socket + ".address: must not be empty; " + socket + ": port_specifier must be port_value, is named_port"},
		{"port 0", `endpoint{address{socket_address{address:"a" port_value:0}}}`,
			socket + ".port_value: must be from 1 to 65535, is 0"},
		{"a port out of range", `endpoint{address{socket_address{address:"a" port_value:65536}}}`,
			socket + ".port_value: must be from 1 to 65535, is 65536"},
		badHost("a:80"), badHost("[::1]"), badHost("http://a"),
	})
	for given, tc := range map[string]struct {
		resource *endpointpb.ClusterLoadAssignment
		want     string
	}{
		"endpoint weights that overflow": {assignment(locality("a", 0, 1, withWeight(host("1"), math.MaxUint32), host("2"))),
			"endpoints[0].lb_endpoints: the endpoints have a weight of 4294967296 together, more than 4294967295"},
		"one address twice, also across localities": {
			assignment(locality("a", 0, 1, host("1"), host("2"), host("1")), locality("b", 1, 1, host("2"))),
			`endpoints[0].lb_endpoints[2].endpoint.address: "1:80" is already the address of endpoints[0].lb_endpoints[0]; ` +
				`endpoints[1].lb_endpoints[0].endpoint.address: "2:80" is already the address of endpoints[0].lb_endpoints[1]`},
	} {
		xdstest.Parallel(t, given, func(t *testing.T) {
			xdstest.Equal(t, "faults", tc.want, faultText(t, EndpointsType, tc.resource))
		})
	}
}

func TestEqualLocalityNamesAreKeptOnce(t *testing.T) {
	t.Parallel()
	e := mustDecode[Endpoints](t, EndpointsType, assignment(locality("a", 0, 1, host("1")), locality("a", 1, 1, host("2"))))
	a, b := e.Localities[0].ID.Zone, e.Localities[1].ID.Zone
	if unsafe.StringData(a) != unsafe.StringData(b) {
		t.Error("two localities of one zone keep its name twice")
	}
}

// gRFC A61, "Support Multiple Addresses Per Endpoint in xDS", and A76.
func TestAdditionalAddressesAndHashKey(t *testing.T) {
	t.Parallel()
	type additional = endpointpb.Endpoint_AdditionalAddress
	e := host("10.0.0.1")
	e.GetEndpoint().AdditionalAddresses = []*additional{{Address: tcp("::1", 80)}, {Address: tcp("10.0.0.2", 81)}}
	withText(t, e, `metadata{filter_metadata{key:"envoy.lb" value{fields{key:"hash_key" value{string_value:"stateful-0"}}}}}`)
	got := mustDecode[Endpoints](t, EndpointsType, assignment(locality("z", 0, 1, e))).Localities[0].Endpoints[0]
	want := Endpoint{Address: "10.0.0.1:80", Additional: []string{"[::1]:80", "10.0.0.2:81"}, Weight: 1, HashKey: "stateful-0"}
	want.Metadata = got.Metadata
	xdstest.Equal(t, "Endpoint", want, got)
	e.GetEndpoint().AdditionalAddresses = []*additional{{}, {Address: tcp("10.0.0.1", 80)}, {Address: tcp("a b", 80)}}
	const at = "endpoints[0].lb_endpoints[0].endpoint.additional_addresses"
	checkFaults(t, EndpointsType, assignment(locality("z", 0, 1, e)), []fault{
		{at + "[0].address", "must be socket_address, is not set"},
		{at + "[1].address", `"10.0.0.1:80" is already the address of endpoints[0].lb_endpoints[0]`},
		{at + "[2].address.socket_address.address", `"a b" is neither an IP address nor a host name`},
	})
}

func TestEndpointEqualSeesEveryField(t *testing.T) {
	t.Parallel()
	e := Endpoint{Address: "a:1", Additional: []string{"b:1"}, Hostname: "h", Proxy: "p", HashKey: "k", Metadata: "m", Weight: 2, Health: HealthHealthy}
	for i := range reflect.TypeFor[Endpoint]().NumField() {
		other := e
		reflect.ValueOf(&other).Elem().Field(i).SetZero()
		if e.Equal(other) {
			t.Errorf("Equal does not look at %s", reflect.TypeFor[Endpoint]().Field(i).Name)
		}
	}
	if !e.Equal(e) {
		t.Error("an endpoint does not equal itself")
	}
}

func TestAddressFamily(t *testing.T) {
	t.Parallel()
	both := []string{"[2001:db8::1]:80", "10.0.0.1:80", "[2001:db8::2]:80", "[::ffff:10.0.0.2]:80"}
	v4, v6 := []string{both[1], both[3]}, []string{both[0], both[2]}
	for _, tc := range []struct {
		given              string
		family             AddressFamily
		both, only4, only6 []string
	}{
		{"any", FamilyAny, both, v4, v6},
		{"V4_ONLY", FamilyV4, v4, v4, nil},
		{"V6_ONLY", FamilyV6, v6, nil, v6},
		{"V4_PREFERRED", FamilyV4Preferred, v4, v4, v6},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			for _, c := range []struct{ addresses, want []string }{{both, tc.both}, {v4, tc.only4}, {v6, tc.only6}} {
				xdstest.Equal(t, fmt.Sprintf("of %v it chooses", c.addresses),
					c.want, tc.family.choose(c.addresses))
			}
		})
	}
}

func TestResolvedCluster(t *testing.T) {
	t.Parallel()
	zone := func(z string) LocalityID { return LocalityID{Zone: z} }
	// strict has two names in one locality and one in another, of priority 1.
	strict := func(weight uint32) *Cluster {
		return &Cluster{Kind: ClusterStrictDNS, Inline: &Endpoints{
			Name: "blue", Drops: []Drop{{"spare", 1}},
			Localities: []Locality{
				{ID: zone("a"), Weight: weight, Endpoints: []Endpoint{
					{Address: "one:80", Weight: 2, HashKey: "k", Health: HealthDraining}, {Address: "two:81", Weight: 3, Hostname: "h", Additional: []string{"10.9.9.9:1"}},
				}},
				{ID: zone("b"), Priority: 1, Weight: weight, Endpoints: []Endpoint{{Address: "three:80", Weight: 1}}},
			},
		}}
	}
	endpoint := func(address string, weight uint32, hostname string) Endpoint {
		return Endpoint{Address: address, Weight: weight, Hostname: hostname}
	}
	first := func(address string) Endpoint {
		return Endpoint{Address: address, Weight: 2, Hostname: "one", HashKey: "k", Health: HealthDraining}
	}
	for _, tc := range []struct {
		given     string
		cluster   *Cluster
		addresses map[string][]string
		want      []Locality
	}{
		{"no address at all", strict(1), nil, nil},
		{
			"STRICT_DNS: every address is an endpoint, with the weight of its name (Envoy)", strict(7),
			map[string][]string{"one:80": {"10.0.0.1:80", "[::1]:80"}, "two:81": {"10.0.0.1:81"}, "three:80": {"10.0.0.3:80"}},
			[]Locality{
				{ID: zone("a"), Weight: 7, Endpoints: []Endpoint{first("10.0.0.1:80"), first("[::1]:80"), endpoint("10.0.0.1:81", 3, "h")}},
				{ID: zone("b"), Priority: 1, Weight: 7, Endpoints: []Endpoint{endpoint("10.0.0.3:80", 1, "three")}},
			},
		}, {
			"STRICT_DNS without weights of localities: each weighs as much as its endpoints that get RPCs", strict(0),
			map[string][]string{"one:80": {"10.0.0.1:80", "10.0.0.2:80"}, "two:81": {"10.0.0.1:81"}, "three:80": {"10.0.0.3:80"}},
			[]Locality{
				{ID: zone("a"), Weight: 3, Endpoints: []Endpoint{first("10.0.0.1:80"), first("10.0.0.2:80"), endpoint("10.0.0.1:81", 3, "h")}},
				{ID: zone("b"), Priority: 1, Weight: 1, Endpoints: []Endpoint{endpoint("10.0.0.3:80", 1, "three")}},
			},
		}, {
			"a priority whose names have no address leaves no gap", strict(1),
			map[string][]string{"three:80": {"10.0.0.3:80"}},
			[]Locality{{ID: zone("b"), Weight: 1, Endpoints: []Endpoint{endpoint("10.0.0.3:80", 1, "three")}}},
		}, {
			"an address of two names is an endpoint once", strict(1),
			map[string][]string{"two:81": {"10.0.0.3:80", "10.0.0.3:80"}, "three:80": {"10.0.0.3:80"}},
			[]Locality{{ID: zone("a"), Weight: 1, Endpoints: []Endpoint{endpoint("10.0.0.3:80", 3, "h")}}},
		}, {
			"LOGICAL_DNS: all addresses are one endpoint (gRFC A61, \"Changes to Logical DNS Clusters\")",
			&Cluster{Kind: ClusterLogicalDNS, Resolution: Resolution{AddressFamily: FamilyV4}, Inline: &Endpoints{Name: "blue", Drops: []Drop{{"spare", 1}}, Localities: []Locality{
				{Weight: 1, Endpoints: []Endpoint{{Address: "name:80", Hostname: "name:80", Weight: 1, Additional: []string{"10.9.9.9:1"}}}},
			}}},
			map[string][]string{"name:80": {"[::1]:80", "10.0.0.1:80", "10.0.0.2:80"}},
			[]Locality{{Weight: 1, Endpoints: []Endpoint{
				{Address: "10.0.0.1:80", Additional: []string{"10.0.0.2:80"}, Hostname: "name:80", Weight: 1},
			}}},
		},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			got := tc.cluster.Resolved(func(name string) []string { return tc.addresses[name] })
			want := &Endpoints{Name: "blue", Drops: []Drop{{"spare", 1}}, Localities: tc.want}
			xdstest.Equal(t, "endpoints", want, got)
		})
	}
}

// What Resolved returns keeps what Locality and Endpoint promise: weights fit 32
// bits together and none is 0.
func TestResolvedWeightsFit(t *testing.T) {
	t.Parallel()
	c := &Cluster{Kind: ClusterStrictDNS, Inline: &Endpoints{Localities: []Locality{
		{ID: LocalityID{Zone: "a"}, Endpoints: []Endpoint{{Address: "a", Weight: math.MaxUint32 - 1}, {Address: "b", Weight: 1}}},
		{ID: LocalityID{Zone: "b"}, Endpoints: []Endpoint{{Address: "c", Weight: math.MaxUint32}}},
	}}}
	got := c.Resolved(func(name string) []string { return []string{name + "1", name + "2", name + "3"} })
	for _, l := range got.Localities {
		if total := totalWeight(l.Endpoints); total > math.MaxUint32 {
			t.Errorf("the endpoints weigh %d together", total)
		}
		if e := l.Endpoints; e[0].Weight != e[1].Weight || e[0].Weight < math.MaxUint32/4 {
			t.Errorf("weights are not in proportion: %d and %d", e[0].Weight, e[1].Weight)
		}
		if last := l.Endpoints[len(l.Endpoints)-1].Weight; last == 0 {
			t.Error("a weight is 0")
		}
	}
	a, b := got.Localities[0].Weight, got.Localities[1].Weight
	if sum := uint64(a) + uint64(b); sum > math.MaxUint32 || a != b {
		t.Errorf("the localities weigh %d and %d", a, b)
	}
}

func TestDNSNames(t *testing.T) {
	t.Parallel()
	c := &Cluster{Kind: ClusterStrictDNS, Inline: &Endpoints{Localities: []Locality{
		{Endpoints: []Endpoint{{Address: "b:1"}, {Address: "a:2"}}}, {Endpoints: []Endpoint{{Address: "c:3"}}},
	}}}
	xdstest.Equal(t, "DNSNames()", []string{"b:1", "a:2", "c:3"}, c.DNSNames())
}
