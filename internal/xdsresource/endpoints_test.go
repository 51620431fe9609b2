package xdsresource

import (
	"fmt"
	"math"
	"reflect"
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

// gRFC A27: HEALTHY and UNKNOWN get RPCs.
func TestUsable(t *testing.T) {
	t.Parallel()
	for h := HealthUnknown; h <= 99; h++ {
		if want := h == HealthUnknown || h == HealthHealthy; h.Usable() != want {
			t.Errorf("%v gets RPCs: %v, want %v", h, h.Usable(), want)
		}
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
