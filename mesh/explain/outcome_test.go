package explain

import (
	"slices"
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	randompb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsmsg"
)

// The outcome and its code are those of RPCs that filters end, or whose path cannot be rewritten.
func TestOutcomeOfFiltersAndRewrites(t *testing.T) {
	t.Parallel()
	notFound := xdsmsg.PrefixRoute("/", "c")
	notFound.Action = &routepb.Route_DirectResponse{DirectResponse: &routepb.DirectResponseAction{Status: 404}}
	rewritten := xdsmsg.PrefixRoute("/", "c")
	rewritten.GetRoute().PrefixRewrite = "no"
	overridden := xdsmsg.WeightedRoute("/", xdsmsg.Weighted{Cluster: "c", Weight: 1}, xdsmsg.Weighted{Cluster: "d", Weight: 3})
	overridden.GetRoute().GetWeightedClusters().Clusters[1].TypedPerFilterConfig = map[string]*anypb.Any{"fault": xdsmsg.Any(fault(50))}
	byHeader := &faultpb.HTTPFault{Abort: &faultpb.FaultAbort{
		ErrorType: &faultpb.FaultAbort_HeaderAbort_{HeaderAbort: &faultpb.FaultAbort_HeaderAbort{}}, Percentage: &typepb.FractionalPercent{Numerator: 100},
	}}
	none := fault(100)
	none.MaxActiveFaults = wrapperspb.UInt32(0)
	ok := fault(100)
	ok.Abort.ErrorType = &faultpb.FaultAbort_GrpcStatus{GrpcStatus: 0}
	for name, tc := range map[string]struct {
		fault         *faultpb.HTTPFault
		route         *routepb.Route
		headers       map[string][]string
		outcome, code string
	}{
		"all":               {fault(100), xdsmsg.PrefixRoute("/", "c"), nil, `→ UNAVAILABLE by filter "fault"`, "UNAVAILABLE"},
		"some":              {fault(30), xdsmsg.PrefixRoute("/", "c"), nil, `→ 30% UNAVAILABLE by filter "fault", 70% cluster "c", priority 0, 1 endpoint`, ""},
		"before a response": {fault(100), notFound, nil, `ends them with UNAVAILABLE by filter "fault"`, "UNAVAILABLE"},
		"some before a response": {fault(30), notFound, nil,
			`→ 30% UNAVAILABLE by filter "fault", 70% UNIMPLEMENTED: the route answers with HTTP status 404`, ""},
		"no faults at a time": {none, notFound, nil, "ends them with UNIMPLEMENTED: the route answers with HTTP status 404", "UNIMPLEMENTED"},
		"success":             {ok, xdsmsg.PrefixRoute("/", "c"), nil, `→ OK by filter "fault"`, ""},
		"of a cluster": {fault(0), overridden, nil,
			`→ 37.5% UNAVAILABLE by filter "fault", 25% cluster "c", priority 0, 1 endpoint, 37.5% cluster "d", priority 0, 1 endpoint`, ""},
		"not asked for": {byHeader, xdsmsg.PrefixRoute("/", "c"), nil, `→ cluster "c", priority 0, 1 endpoint`, ""},
		"asked for": {byHeader, xdsmsg.PrefixRoute("/", "c"), map[string][]string{"x-envoy-fault-abort-grpc-request": {"5"}},
			`→ NOT_FOUND by filter "fault"`, "NOT_FOUND"},
		"asked for some": {byHeader, xdsmsg.PrefixRoute("/", "c"),
			map[string][]string{"x-envoy-fault-abort-request": {"503"}, "x-envoy-fault-abort-request-percentage": {"20"}},
			`→ 20% UNAVAILABLE by filter "fault", 80% cluster "c", priority 0, 1 endpoint`, ""},
		"a rewrite": {fault(0), rewritten, nil, `→ UNAVAILABLE: prefix_rewrite turns the path into "nopkg.Service/Method", which is not a path`, "UNAVAILABLE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serving(tc.route, xdsmsg.PrefixRoute("/c", "c"), xdsmsg.PrefixRoute("/d", "d"))
			s.Resources[0] = held(xdsmsg.DefaultListener("backend", "r", xdsmsg.Filter("fault", tc.fault)))
			e := mustExplain(t, s, Request{Headers: tc.headers})
			if want := "route 0 " + tc.outcome; e.Outcome != want || e.Code != tc.code {
				t.Errorf("outcome %q with code %q; want %q with %q", e.Outcome, e.Code, want, tc.code)
			}
			share := 0.0
			for i := range e.Clusters {
				share += e.Clusters[i].Share
			}
			for _, f := range e.Routes[0].Action.Filters {
				if f.Ends != nil && len(e.Routes[0].Action.Destinations) == 1 && f.Ends.Percent+share != 100 {
					t.Errorf("the filter ends %v%%, and %v%% go to clusters", f.Ends.Percent, share)
				}
			}
		})
	}
}

// dropping returns the endpoints of a cluster that drops shares of its RPCs.
func dropping(name string, percent ...uint32) *endpointpb.ClusterLoadAssignment {
	a := xdsmsg.SimpleEndpoints(name, "10.0.0.1:80")
	a.Policy = new(endpointpb.ClusterLoadAssignment_Policy)
	for _, p := range percent {
		a.Policy.DropOverloads = append(a.Policy.DropOverloads, &endpointpb.ClusterLoadAssignment_Policy_DropOverload{
			Category: "c", DropPercentage: &typepb.FractionalPercent{Numerator: p},
		})
	}
	return a
}

// limited returns a cluster with a bound on concurrent RPCs.
func limited(name string, requests uint32) *clusterpb.Cluster {
	c := xdsmsg.EDSCluster(name, "")
	c.CircuitBreakers = &clusterpb.CircuitBreakers{Thresholds: []*clusterpb.CircuitBreakers_Thresholds{{MaxRequests: wrapperspb.UInt32(requests)}}}
	return c
}

// RPCs that are dropped, or refused by the limit, fail at the cluster that they go to: an aggregate cluster
// does not use another member for that.
func TestOutcomeOfRefusals(t *testing.T) {
	t.Parallel()
	const drops, limit = `all RPCs are dropped (drop_overloads, category "c")`, "circuit_breakers.max_requests is 0"
	empty := dropping("c", 100)
	empty.Endpoints = nil
	for name, tc := range map[string]struct {
		cluster       *clusterpb.Cluster
		endpoints     *endpointpb.ClusterLoadAssignment
		outcome, code string
	}{
		"some dropped":             {xdsmsg.EDSCluster("c", ""), dropping("c", 50, 30), ", priority 0, 1 endpoint, 65% dropped with UNAVAILABLE", ""},
		"all dropped":              {xdsmsg.EDSCluster("c", ""), dropping("c", 50, 100), ", where they fail with UNAVAILABLE: " + drops, "UNAVAILABLE"},
		"all dropped, no endpoint": {xdsmsg.EDSCluster("c", ""), empty, ", where they fail with UNAVAILABLE: " + drops, "UNAVAILABLE"},
		"no request":               {limited("c", 0), dropping("c"), ", where they fail with UNAVAILABLE: " + limit, "UNAVAILABLE"},
		"one request":              {limited("c", 1), dropping("c"), ", priority 0, 1 endpoint", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serving(xdsmsg.PrefixRoute("/", "c"))
			s.Resources[2], s.Resources[3] = held(tc.cluster), held(tc.endpoints)
			if e := mustExplain(t, s, Request{}); e.Outcome != `route 0 → cluster "c"`+tc.outcome || e.Code != tc.code {
				t.Errorf("outcome %q with code %q; want %q with %q", e.Outcome, e.Code, tc.outcome, tc.code)
			}
			s = serving(xdsmsg.PrefixRoute("/", "all"), xdsmsg.PrefixRoute("/d", "d"))
			s.Resources[2] = held(xdsmsg.AggregateCluster("all", "c", "d"))
			s.Resources = append(s.Resources, held(tc.cluster), held(tc.endpoints))
			if e := mustExplain(t, s, Request{}); e.Outcome != `route 0 → cluster "all", of it "c"`+tc.outcome || e.Code != tc.code {
				t.Errorf("under an aggregate cluster: outcome %q with code %q; want %q with %q", e.Outcome, e.Code, tc.outcome, tc.code)
			}
		})
	}
}

// A locality's share is its weight's, also across localities, unless the policy counts endpoints only.
func TestSharesOfLocalities(t *testing.T) {
	t.Parallel()
	in := func(zone string, addresses ...string) xdsmsg.Locality {
		l := xdsmsg.Locality{Zone: zone, Weight: 1}
		for _, a := range addresses {
			l.Endpoints = append(l.Endpoints, xdsmsg.Endpoint{Addr: a})
		}
		return l
	}
	for policy, want := range map[string]float64{"ROUND_ROBIN": 50, "RING_HASH": 50, "MAGLEV": 50, "RANDOM": 75} {
		s := serving(xdsmsg.PrefixRoute("/", "c"))
		c := xdsmsg.EDSCluster("c", "")
		c.LbPolicy = clusterpb.Cluster_LbPolicy(clusterpb.Cluster_LbPolicy_value[policy])
		if policy == "RANDOM" {
			c.LoadBalancingPolicy = policies(new(randompb.Random))
		}
		s.Resources[2] = held(c)
		s.Resources[3] = held(xdsmsg.Endpoints("c", in("a", "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"), in("b", "10.0.0.4:80")))
		got := mustExplain(t, s, Request{}).Clusters[0].Assignment.Priorities[0].Localities[0].Percent
		if float64(got) != want {
			t.Errorf("%s: %v%% go to the locality, want %v%%", policy, got, want)
		}
	}
}

// A cluster that dynxds cannot decode, although its client uses it, is not said to fail.
func TestOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	for _, aggregate := range []bool{false, true} {
		s := serving(xdsmsg.PrefixRoute("/", "c"), xdsmsg.PrefixRoute("/d", "d"))
		name := "c"
		if aggregate {
			s.Resources[2], name = held(xdsmsg.AggregateCluster("c", "m", "d")), "m"
			s.Resources = append(s.Resources, held(xdsmsg.EDSCluster("m", "")))
		}
		// dynxds rejects priorities with gaps.
		s.Resources = append(s.Resources, held(xdsmsg.Endpoints(name, xdsmsg.Locality{Zone: "a", Priority: 1, Weight: 1, Endpoints: []xdsmsg.Endpoint{{Addr: "10.0.0.1:80"}}})))
		s.Resources = slices.Delete(s.Resources, 3, 4) // the endpoints of c
		e := mustExplain(t, s, Request{})
		if e.Code != "" || !strings.Contains(e.Outcome, "not known what becomes of them") || !strings.Contains(e.Outcome, "dynxds cannot use the ClusterLoadAssignment, although the client does") {
			t.Errorf("outcome %q with code %q", e.Outcome, e.Code)
		}
	}
}

// DNS may resolve a channel of dynxds without a Listener, which its resources do not tell. Other clients fail, and
// a channel of the process that is here says what it does.
func TestOutcomeWithoutAListener(t *testing.T) {
	t.Parallel()
	const fails = `fail with UNAVAILABLE: the client has no Listener "backend": the management server does not have it`
	for name, tc := range map[string]struct {
		userAgent, state string
		live             bool
		outcome, code    string
	}{
		"dynxds":           {"dynxds", "DOES_NOT_EXIST", false, "RPCs go to the addresses in DNS, unless", ""},
		"the channel here": {"dynxds", "DOES_NOT_EXIST", true, "RPCs " + fails, "UNAVAILABLE"},
		"another client":   {"gRPC Go", "DOES_NOT_EXIST", false, "RPCs " + fails, "UNAVAILABLE"},
		"no answer":        {"dynxds", "REQUESTED", false, "RPCs wait: ", ""},
	} {
		s := sourceOf(xdsmsg.DefaultListener("backend", "r"))
		s.Resources[0].Raw, s.Resources[0].State, s.Client.Name = nil, tc.state, tc.userAgent
		if tc.live {
			s.Live = func(string) (inspect.Cluster, bool) { return inspect.Cluster{}, false }
		}
		e := mustExplain(t, s, Request{})
		if !strings.HasPrefix(e.Outcome, tc.outcome) || e.Code != tc.code {
			t.Errorf("%s: outcome %q with code %q; want %q with %q", name, e.Outcome, e.Code, tc.outcome, tc.code)
		}
	}
}
