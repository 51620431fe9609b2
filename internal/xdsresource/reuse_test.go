package xdsresource

import (
	"fmt"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

// versions are of one resource, each decoded after the one before.
type versions struct{ last any }

func (v *versions) decode(typ *xdsclient.ResourceType, pb proto.Message) error {
	value, err := typ.Decode(xdsmsg.Any(pb), xdsclient.DecodeOptions{Last: v.last})
	if err == nil {
		v.last = value
	}
	return err
}

// checkSameRouting compares what two RouteConfigurations hold.
func checkSameRouting(t *testing.T, got, want *RouteConfiguration) {
	t.Helper()
	if len(got.VirtualHosts) != len(want.VirtualHosts) {
		t.Fatalf("%d virtual hosts, want %d", len(got.VirtualHosts), len(want.VirtualHosts))
	}
	for i, w := range want.VirtualHosts {
		xdstest.Equal(t, "the clusters", slices.Collect(w.Clusters), slices.Collect(got.VirtualHosts[i].Clusters))
		g := got.VirtualHosts[i]
		if g.Name != w.Name || !reflect.DeepEqual(g.Domains, w.Domains) || !reflect.DeepEqual(g.Overrides, w.Overrides) || !reflect.DeepEqual(g.Routes, w.Routes) {
			t.Errorf("virtual host %d is not what it decodes to", i)
		}
	}
}

// FuzzVersions has two versions decoded one after the other: with the help of the first, the second has the outcome that it has alone.
func FuzzVersions(f *testing.F) {
	first := placedRoutes(1)
	second := proto.Clone(first).(*routepb.RouteConfiguration)
	second.VirtualHosts[0].Routes[9].RequestHeadersToRemove = []string{"x"}
	second.VirtualHosts[0].Routes[10].Match = regexMatch("/a.*")
	second.VirtualHosts[0].Routes[11].Metadata = placed(1000)
	f.Add(xdsmsg.Any(first).GetValue(), xdsmsg.Any(second).GetValue())
	f.Add(xdsmsg.Any(second).GetValue(), xdsmsg.Any(first).GetValue())
	second.VirtualHosts[0].RequestHeadersToRemove = []string{"y"}
	f.Add(xdsmsg.Any(first).GetValue(), xdsmsg.Any(second).GetValue())
	f.Add(xdsmsg.Any(first).GetValue(), append(xdsmsg.Any(second).GetValue(), 0xff))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		decode := func(raw []byte, o xdsclient.DecodeOptions) (any, error) {
			return RouteConfigurationType.Decode(&anypb.Any{TypeUrl: RouteConfigurationType.TypeURL, Value: raw}, o)
		}
		last, err := decode(first, xdsclient.DecodeOptions{})
		if err != nil {
			return
		}
		want, wantErr := decode(second, xdsclient.DecodeOptions{})
		got, gotErr := decode(second, xdsclient.DecodeOptions{Last: last})
		xdstest.Equal(t, "the error", fmt.Sprint(wantErr), fmt.Sprint(gotErr))
		if wantErr == nil {
			checkSameRouting(t, got.(*RouteConfiguration), want.(*RouteConfiguration))
		}
	})
}

// A regular expression of the version before is not compiled again.
func TestRegularExpressionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	pb := routeConfig(xdsmsg.Route(regexMatch("/a.*"), xdsmsg.ToCluster("x")), xdsmsg.Route(regexMatch("/b.*"), xdsmsg.ToCluster("x")))
	for name, tc := range map[string]struct {
		typ    *xdsclient.ResourceType
		in     func() proto.Message
		routes func(value any) *RouteConfiguration
	}{
		"RouteConfiguration": {
			RouteConfigurationType, func() proto.Message { return pb }, func(value any) *RouteConfiguration { return value.(*RouteConfiguration) },
		},
		"Listener": {
			ListenerType, func() proto.Message { return xdsmsg.InlineListener("l", pb) }, func(value any) *RouteConfiguration { return value.(*Listener).RouteConfig },
		},
	} {
		var v versions
		regex := func(i int) *regexp.Regexp {
			return tc.routes(v.last).VirtualHosts[0].Routes[i].Match.Further.Regex.Regexp
		}
		xdstest.NoError(t, v.decode(tc.typ, tc.in()))
		before := []*regexp.Regexp{regex(0), regex(1)}
		pb.VirtualHosts[0].Routes[0] = xdsmsg.Route(regexMatch("/"+name), xdsmsg.ToCluster("x"))
		xdstest.NoError(t, v.decode(tc.typ, tc.in()))
		if regex(0) == before[0] || regex(1) != before[1] {
			t.Errorf("%s: the expressions are %v and %v, and were %v", name, regex(0), regex(1), before)
		}
	}
}

// Given a bound on all regular expressions of a resource, when updates bring one after the other, then they count
// together, and removed ones do not count.
func TestRegularExpressionsOfUpdatesCountTogether(t *testing.T) {
	t.Parallel()
	large := func(i int) *routepb.RouteMatch {
		return regexMatch(fmt.Sprintf("/%d(%s){1000}", i, strings.Repeat("a", 40)))
	}
	pb := routeConfig()
	host := pb.VirtualHosts[0]
	var v versions
	var err error
	for err == nil && len(host.Routes) < 100 {
		host.Routes = append(host.Routes, xdsmsg.Route(large(len(host.Routes)), xdsmsg.ToCluster("a")))
		err = v.decode(RouteConfigurationType, pb)
	}
	_, want := RouteConfigurationType.Decode(xdsmsg.Any(pb), xdsclient.DecodeOptions{})
	if len(host.Routes) < 10 || err == nil || want == nil || err.Error() != want.Error() {
		t.Fatalf("the error of %d large expressions is %v, want %v", len(host.Routes), err, want)
	}
	host.Routes = host.Routes[:1]
	for i := range 30 {
		host.Routes[0] = xdsmsg.Route(large(1000+i), xdsmsg.ToCluster("a"))
		xdstest.NoError(t, v.decode(RouteConfigurationType, pb))
	}
}

// Given a table of routes two of which change at a time, then the memory of the versions before is free.
func TestVersionsDoNotKeepEachOther(t *testing.T) {
	const n = 2_000
	pb := manyRoutes(n, matchKinds[0].match)
	var v versions
	xdstest.NoError(t, v.decode(RouteConfigurationType, pb))
	before := heapInUse()
	for i := range 100 {
		for _, at := range []int{i, i + 100} {
			pb.VirtualHosts[0].Routes[at].Match = xdsmsg.Path(fmt.Sprintf("/new/%d", at))
		}
		xdstest.NoError(t, v.decode(RouteConfigurationType, pb))
	}
	if more, all := heapInUse()-before, int64(100*proto.Size(pb)); more > all/10 {
		t.Errorf("after 100 updates of a RouteConfiguration of %d bytes there are %d bytes more", proto.Size(pb), more)
	}
	runtime.KeepAlive(v)
}

// Of a table of routes, only what changed is allocated.
func TestUnchangedRoutesAllocateNothing(t *testing.T) {
	const n = 1_000
	pb := manyRoutes(n, matchKinds[0].match)
	options := xdsclient.DecodeOptions{Last: mustDecode[RouteConfiguration](t, RouteConfigurationType, pb)}
	pb.VirtualHosts[0].Routes[n/2] = xdsmsg.Route(xdsmsg.Path("/new"), xdsmsg.ToCluster("new"))
	resource := xdsmsg.Any(pb)
	allocs := testing.AllocsPerRun(10, func() {
		if _, err := RouteConfigurationType.Decode(resource, options); err != nil {
			t.Error(err)
		}
	})
	if allocs > n/10 {
		t.Errorf("%v allocations for one change among %d routes", allocs, n)
	}
}
