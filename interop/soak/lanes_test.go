package soak

import (
	"fmt"
	"slices"
	"testing"

	publishedpb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

var (
	keeps = client{name: "keeps", dpds: keepsDPDS}
	drops = client{name: "drops", dpds: dropsDPDS}
)

// forks is a configuration in which lane "a" leads to blue and "b" to amber. Each
// of them has another backend in each lane: 0 and 1, 2 and 3.
func forks(version int, handouts map[string]handout) *config {
	in := func(a, b int) clusterSpec {
		return clusterSpec{placements: map[lane]placement{"a": {priorities: [][]int{{a}}}, "b": {priorities: [][]int{{b}}}}}
	}
	return &config{
		version:  version,
		routes:   map[lane]map[string][]string{"a": {method: {"blue"}}, "b": {method: {"amber"}}},
		clusters: map[string]clusterSpec{"blue": in(0, 1), "amber": in(2, 3)},
		handouts: handouts,
	}
}

// inLanes is the handout of a lane for routes and another for endpoints.
func inLanes(routes, endpoints lane) handout {
	return handout{lanes: map[string]lane{xdsmsg.RouteType: routes, xdsmsg.EndpointType: endpoints}}
}

// An RPC may follow routes in a lane, and go to endpoints in a lane, of the client's
// handouts, even of different times, but no others (xRFC TP2, "Server-Specified
// Constraints").
func TestWhereAnRPCMayGoByDPDS(t *testing.T) {
	t.Parallel()
	live := []*config{
		forks(2, map[string]handout{keeps.name: inLanes("a", "a"), drops.name: inLanes("b", "b")}),
		forks(2, map[string]handout{keeps.name: inLanes("b", "a"), drops.name: inLanes("b", "b")}),
	}
	for _, test := range []struct {
		who     client
		lane    lane
		backend int
		fault   string
	}{
		{keeps, "a", 0, ""},
		{keeps, "b", 2, ""},
		{keeps, "a", 2, ""}, // it was picked for by the routes it moved to
		{keeps, "a", 1, "does not lead to backend 1"},
		{keeps, "b", 3, "does not lead to backend 3"},
		{keeps, "c", 0, "may not have"},
		{keeps, unlaned, 0, "may not have"},
		{drops, "b", 3, ""},
		{drops, "b", 2, "does not lead to backend 2"},
		{drops, "a", 0, "may not have"},
		{client{name: "neither"}, "a", 0, "may not have"},
	} {
		xdstest.Parallel(t, fmt.Sprintf("%s, lane %q, backend %d", test.who.name, test.lane, test.backend), func(t *testing.T) {
			checkFault(t, allowed(live, test.who, answered(2, test.lane, test.backend)), test.fault)
		})
	}
}

// While its DPDS resource is doubtful, a client has no constraints or those of the resource;
// none if they are denied.
func TestLanesWhileDPDSIsDoubtful(t *testing.T) {
	t.Parallel()
	denied := inLanes("b", "b")
	denied.instead = codes.NotFound
	for _, test := range []struct {
		state   dpdsState
		handout handout
		want    []lane
	}{
		{dpdsServed, inLanes("b", "b"), []lane{"b"}},
		{dpdsDoubtful, inLanes("b", "b"), []lane{"a", "b"}},
		{dpdsDoubtful, denied, []lane{"a"}},
		{dpdsGone, inLanes("b", "b"), []lane{"a"}},
	} {
		c := forks(1, map[string]handout{drops.name: test.handout})
		c.dpds = map[string]dpdsState{drops.dpds.resource(): test.state}
		if got := lanesOf([]*config{c}, drops, xdsmsg.RouteType); !slices.Equal(got, test.want) {
			t.Errorf("state %v, handout %v: lanes %q, want %q", test.state, test.handout, got, test.want)
		}
	}
}

// A client has the constraints of its handout. With an error in their place it has none if
// its server has fail_on_data_errors, else the last ones (gRFC A88); a transient error
// changes nothing.
func TestConstraintsOfAClient(t *testing.T) {
	t.Parallel()
	but := func(code codes.Code) handout {
		h := inLanes("b", unlaned)
		h.instead = code
		return h
	}
	for _, test := range []struct {
		name        string
		who         client
		handout     handout
		state       dpdsState
		constrained lane // for routes
		gets        lane
	}{
		{"constrained", keeps, inLanes("b", "c"), dpdsServed, "b", "b"},
		{"constrained", drops, inLanes("b", "c"), dpdsServed, "b", "b"},
		{"another type constrained", keeps, inLanes(unlaned, "c"), dpdsServed, unlaned, "a"},
		{"no constraints", keeps, handout{}, dpdsServed, unlaned, "a"},
		{"denied", keeps, but(codes.PermissionDenied), dpdsServed, "b", "b"},
		{"denied", drops, but(codes.PermissionDenied), dpdsServed, unlaned, "a"},
		{"not found", drops, but(codes.NotFound), dpdsServed, unlaned, "a"},
		{"transient error", drops, but(codes.Internal), dpdsServed, "b", "b"},
		{"deleted", keeps, inLanes("b", "c"), dpdsGone, "b", "b"},
		{"deleted", drops, inLanes("b", "c"), dpdsGone, unlaned, "a"},
		{"lied about", keeps, inLanes("b", "c"), dpdsDoubtful, "b", "b"},
		{"lied about", drops, inLanes("b", "c"), dpdsDoubtful, unlaned, "a"},
		{"without DPDS", client{}, handout{}, dpdsServed, unlaned, unlaned},
	} {
		xdstest.Parallel(t, test.name+", "+test.who.name, func(t *testing.T) {
			c := forks(1, map[string]handout{test.who.name: test.handout})
			c.dpds = map[string]dpdsState{test.who.dpds.resource(): test.state}
			xdstest.Equal(t, "the lane it subscribes to", test.constrained, c.constrained(test.who, xdsmsg.RouteType))
			xdstest.Equal(t, "the lane it gets", test.gets, c.lane(test.who, xdsmsg.RouteType))
			xdstest.Equal(t, "the lane of its Clusters", unlaned, c.lane(test.who, xdsmsg.ClusterType))
		})
	}
}

// Constraints other than those of the handout, another variant, the same name twice, and
// DPDS in spite of a denial are differences.
func TestWhatAClientHolds(t *testing.T) {
	t.Parallel()
	other, err := dynparam.NewParameters(lane("c").parameters())
	xdstest.NoError(t, err)
	routes := xdsclient.ResourceDump{TypeURL: xdsmsg.RouteType, Name: lanedNames.name(xdsmsg.RouteType, ""),
		State: xdsclient.StateACKed, Constraints: lane("b").constraints(), Parameters: other}
	elsewhere := routes
	elsewhere.Constraints = lane("a").constraints()
	dpds := xdsclient.ResourceDump{TypeURL: dynparam.MapTypeURL, Name: drops.dpds.resource(), State: xdsclient.StateACKed}
	denied := dpds
	denied.State = xdsclient.StateReceivedError
	for _, test := range []struct {
		name    string
		handout handout
		held    []xdsclient.ResourceDump
		fault   string
	}{
		{"other constraints", inLanes("b", "b"), []xdsclient.ResourceDump{elsewhere}, "with the handout"},
		{"another variant", inLanes("b", "b"), []xdsclient.ResourceDump{routes}, `is that of lane "c", want "b"`},
		{"another DPDS resource", inLanes("b", "b"), []xdsclient.ResourceDump{dpds}, "its DPDS resource is ACKED"},
		{"DPDS in spite of a denial", handout{instead: codes.NotFound}, []xdsclient.ResourceDump{dpds}, "NotFound"},
		{"DPDS denied, twice", handout{instead: codes.NotFound}, []xdsclient.ResourceDump{denied, denied}, "or twice"},
		{"DPDS denied, and nothing else", handout{instead: codes.NotFound}, []xdsclient.ResourceDump{denied}, "is missing"},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			c := forks(1, map[string]handout{drops.name: test.handout})
			checkFault(t, new(mesh).differenceOf(drops, c, test.held), test.fault)
		})
	}
}

// A distorted DPDS resource is invalid. Else clients would use constraints that the model
// does not know.
func TestLiesAboutDPDSAreNoConstraints(t *testing.T) {
	t.Parallel()
	lies := map[string]func(*anypb.Any){
		"cut short": func(a *anypb.Any) { a.Value = cutShort(a.Value) },
		"garbage":   inside(func(a *anypb.Any) { a.Value = []byte("\xff\xff\xff garbage") }),
		"faulty":    inside(faultyConstraints),
	}
	l := lanes[1]
	for n := 1; n < 1<<len(lanedTypes); n++ {
		h := handout{lanes: map[string]lane{}}
		for i, typeURL := range lanedTypes {
			if n>>i&1 == 1 {
				h.lanes[typeURL] = l
			}
		}
		for name, lie := range lies {
			for wrapping, resource := range map[string]*anypb.Any{"bare": dpdsResource(t, h), "wrapped": wrapped(t, dpdsResource(t, h))} {
				lie(resource)
				if got, err := readDPDS(resource); err == nil {
					t.Errorf("%s, %s: %v becomes %v, which is valid", name, wrapping, h, got)
				}
			}
		}
	}
}

// A published configuration does not change with the next one.
func TestHandoutsDoNotShareTheirLanes(t *testing.T) {
	t.Parallel()
	first := forks(1, map[string]handout{keeps.name: inLanes("a", "a")})
	next := first.clone()
	next.handouts[keeps.name] = inLanes("b", "b")
	xdstest.Equal(t, "the lane that the configuration before hands out", "a", first.lane(keeps, xdsmsg.RouteType))
}

func dpdsResource(t *testing.T, h handout) *anypb.Any {
	packed, err := dynwire.MarshalMap(h.resource().ToProto())
	xdstest.NoError(t, err)
	return packed
}

func wrapped(t *testing.T, a *anypb.Any) *anypb.Any {
	packed, err := anypb.New(&publishedpb.Resource{Name: keepsDPDS.resource(), Version: "0123456789abcdef", Resource: a,
		CacheControl: &publishedpb.Resource_CacheControl{DoNotCache: true}})
	xdstest.NoError(t, err)
	return packed
}

// readDPDS reads a DPDS resource, bare or in its wrapper.
func readDPDS(a *anypb.Any) (dynparam.ByType, error) {
	if a.TypeUrl != dynparam.MapTypeURL {
		wrapper := new(discoverypb.Resource)
		if err := proto.Unmarshal(a.Value, wrapper); err != nil {
			return dynparam.ByType{}, err
		}
		if wrapper.Name == "" {
			return dynparam.ByType{}, fmt.Errorf("no name")
		}
		a = wrapper.Resource
	}
	m, err := dynwire.UnmarshalMap(a)
	if err != nil {
		return dynparam.ByType{}, err
	}
	return dynparam.ByTypeFromProto(m)
}
