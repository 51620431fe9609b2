package xdsresource

import (
	"math"
	"slices"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

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
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			for _, c := range []struct{ addresses, want []string }{{both, tc.both}, {v4, tc.only4}, {v6, tc.only6}} {
				if got := tc.family.choose(c.addresses); !slices.Equal(got, c.want) {
					t.Errorf("of %v it chooses %v, want %v", c.addresses, got, c.want)
				}
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
			"STRICT_DNS without weights of localities: each weighs as much as its endpoints", strict(0),
			map[string][]string{"one:80": {"10.0.0.1:80", "10.0.0.2:80"}, "two:81": {"10.0.0.1:81"}, "three:80": {"10.0.0.3:80"}},
			[]Locality{
				{ID: zone("a"), Weight: 7, Endpoints: []Endpoint{first("10.0.0.1:80"), first("10.0.0.2:80"), endpoint("10.0.0.1:81", 3, "h")}},
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
			&Cluster{Kind: ClusterLogicalDNS, AddressFamily: FamilyV4, Inline: &Endpoints{Name: "blue", Drops: []Drop{{"spare", 1}}, Localities: []Locality{
				{Weight: 1, Endpoints: []Endpoint{{Address: "name:80", Hostname: "name:80", Weight: 1, Additional: []string{"10.9.9.9:1"}}}},
			}}},
			map[string][]string{"name:80": {"[::1]:80", "10.0.0.1:80", "10.0.0.2:80"}},
			[]Locality{{Weight: 1, Endpoints: []Endpoint{
				{Address: "10.0.0.1:80", Additional: []string{"10.0.0.2:80"}, Hostname: "name:80", Weight: 1},
			}}},
		},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
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
	if got, want := c.DNSNames(), []string{"b:1", "a:2", "c:3"}; !slices.Equal(got, want) {
		t.Errorf("DNSNames() = %v, want %v", got, want)
	}
}
