package explain

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// A dump with damaged resources is explained, or is an error.
func TestDamagedResources(t *testing.T) {
	t.Parallel()
	explained := 0
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(5, seed))
		s := shop()
		for range 1 + r.IntN(3) {
			damage(r, s.Resources[r.IntN(len(s.Resources))])
		}
		e, err := Explain(s, Request{Target: "backend", Method: method, Headers: map[string][]string{"x-user": {"7"}}})
		if err != nil {
			continue
		}
		explained++
		if e.Outcome == "" {
			t.Errorf("seed %d: there is no outcome", seed)
		}
		if _, err := json.Marshal(e); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		e.Text()
	}
	if explained < 300 {
		t.Errorf("got %d explanations, want at least 300", explained)
	}
}

// damage changes a resource in one way.
func damage(r *rand.Rand, resource *Resource) {
	if resource.Raw == nil || len(resource.Raw.Value) == 0 {
		return
	}
	b := append([]byte(nil), resource.Raw.Value...)
	switch r.IntN(4) {
	case 0:
		b = b[:r.IntN(len(b))]
	case 1:
		b[r.IntN(len(b))] = byte(r.Uint32())
	case 2: // It occurs twice, so that lists have more entries.
		b = append(b, b...)
	default:
		resource.Raw, resource.State = nil, []string{"", "REQUESTED", "NACKED", "ACKED", "nonsense"}[r.IntN(5)]
		return
	}
	resource.Raw = &anypb.Any{TypeUrl: resource.Raw.TypeUrl, Value: b}
}

// However many routes, clusters, notes and members a process has, and however much of that is repeated,
// neither the explanation nor its text fills the memory, and each takes time in proportion.
func TestExplanationsAreBounded(t *testing.T) {
	t.Parallel()
	const many = 8_000
	names := make([]string, many)
	for i := range names {
		names[i] = fmt.Sprint("a cluster with a name of some length: ", i)
	}
	big := &faultpb.HTTPFault{Abort: &faultpb.FaultAbort{}}
	for range 5000 {
		big.Headers = append(big.Headers, header("x-some-header", "a value"))
	}
	fractions := make([]*routepb.Route, many)
	for i := range fractions {
		fractions[i] = xdsmsg.PrefixRoute("/", "c")
		fractions[i].Match.RuntimeFraction = &corepb.RuntimeFractionalPercent{
			DefaultValue: &typepb.FractionalPercent{Numerator: 1, Denominator: typepb.FractionalPercent_MILLION}}
	}
	byHeader := make([]*routepb.Route, many)
	for i := range byHeader {
		byHeader[i] = some(1, names[i])
		if i%2 == 0 {
			byHeader[i].GetRoute().ClusterSpecifier = &routepb.RouteAction_ClusterHeader{ClusterHeader: "to"}
		}
	}
	weighted := &routepb.WeightedCluster{}
	for _, name := range names {
		weighted.Clusters = append(weighted.Clusters, &routepb.WeightedCluster_ClusterWeight{
			Name: name, Weight: wrapperspb.UInt32(1), RequestHeadersToRemove: []string{"x"},
			TypedPerFilterConfig: map[string]*anypb.Any{"fault": xdsmsg.Any(&faultpb.HTTPFault{})},
		})
	}
	toAll := xdsmsg.Route(xdsmsg.Prefix("/"), &routepb.RouteAction{ClusterSpecifier: &routepb.RouteAction_WeightedClusters{WeightedClusters: weighted}})
	removing := xdsmsg.RouteConfig("r", "*", toAll)
	for i := range 1000 {
		removing.RequestHeadersToRemove = append(removing.RequestHeadersToRemove, fmt.Sprint("x-", i))
	}
	faulty := xdsmsg.DefaultListener("backend", "r", xdsmsg.Filter("fault", big))
	rejected := sourceOf(faulty, removing)
	for _, name := range names {
		r := absentResource(xdsmsg.EDSCluster(name, ""), "NACKED", "no")
		rejected.Resources = append(rejected.Resources, r, r)
	}
	aggregates := sourceOf(xdsmsg.DefaultListener("backend", "r"), xdsmsg.RouteConfig("r", "*", toAll), xdsmsg.AggregateCluster("below", leaves(many)...))
	for _, name := range names {
		aggregates.Resources = append(aggregates.Resources, held(xdsmsg.AggregateCluster(name, "below")))
	}
	addresses := make([]string, 5000)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("10.0.%d.%d:80", i/250, i%250)
	}
	shared := sourceOf(xdsmsg.DefaultListener("backend", "r"), xdsmsg.RouteConfig("r", "*", toAll), xdsmsg.SimpleEndpoints("shared", addresses...))
	for _, name := range names {
		cluster := xdsmsg.EDSCluster(name, "shared")
		cluster.ConnectTimeout = durationpb.New(1)
		shared.Resources = append(shared.Resources, held(cluster))
	}
	for name, s := range map[string]*Source{
		"endpoints":  shared,
		"fractions":  sourceOf(faulty, xdsmsg.RouteConfig("r", "*", fractions...)),
		"by header":  sourceOf(faulty, xdsmsg.RouteConfig("r", "*", byHeader...)),
		"weighted":   sourceOf(faulty, removing),
		"rejected":   rejected,
		"aggregates": aggregates,
	} {
		e := mustExplain(t, s, Request{Headers: map[string][]string{"to": {names[1]}}})
		js, err := json.Marshal(e)
		xdstest.NoError(t, err)
		if text := e.Text(); len(js) > 100<<20 || len(text) > 1<<20 || strings.Count(text, "\n") > 2000 {
			t.Errorf("%s: %d bytes of JSON, %d of text in %d lines:\n%.3000s", name, len(js), len(text), strings.Count(text, "\n"), text)
		}
	}
}

func leaves(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("leaf", i)
	}
	return names
}

func some(percent uint32, cluster string) *routepb.Route {
	r := xdsmsg.PrefixRoute("/", cluster)
	r.Match.RuntimeFraction = fraction(percent)
	return r
}
