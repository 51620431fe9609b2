package explain

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// clustersSource leads all RPCs to cluster "a".
func clustersSource(messages ...proto.Message) *Source {
	return sourceOf(append([]proto.Message{xdsmsg.DefaultListener("backend", "r"), xdsmsg.RouteConfig("r", "*", xdsmsg.PrefixRoute("/", "a"))}, messages...)...)
}

// absentResource is one that the client does not have.
func absentResource(like proto.Message, state, err string) *Resource {
	r := held(like)
	r.Raw, r.Version, r.State, r.Error = nil, "", state, err
	return r
}

func TestWhereRPCsEnd(t *testing.T) {
	t.Parallel()
	dropping := xdsmsg.SimpleEndpoints("a", "10.0.0.1:80")
	dropping.Policy = &endpointpb.ClusterLoadAssignment_Policy{DropOverloads: []*endpointpb.ClusterLoadAssignment_Policy_DropOverload{
		{Category: "lb", DropPercentage: &typepb.FractionalPercent{Numerator: 100}},
	}}
	byHeader := &routepb.Route{Match: xdsmsg.Prefix("/"), Action: &routepb.Route_Route{Route: &routepb.RouteAction{
		ClusterSpecifier: &routepb.RouteAction_ClusterHeader{ClusterHeader: "x-cluster"},
	}}}
	add := func(s *Source, resources ...*Resource) *Source {
		s.Resources = append(s.Resources, resources...)
		return s
	}
	for _, tc := range []struct {
		name    string
		source  *Source
		headers map[string][]string
		code    string
		want    string
	}{
		{"not asked for", clustersSource(), nil, "", `where they wait: the client has not asked for Cluster "a"`},
		{"silent", add(clustersSource(), absentResource(xdsmsg.EDSCluster("a", ""), "REQUESTED", "")), nil, "", `where they wait: the management server has not answered for Cluster "a"`},
		{"deleted", add(clustersSource(), absentResource(xdsmsg.EDSCluster("a", ""), "DOES_NOT_EXIST", "")), nil, "UNAVAILABLE", "the management server does not have it"},
		{"invalid", add(clustersSource(), absentResource(xdsmsg.EDSCluster("a", ""), "NACKED", "type: is none")), nil, "UNAVAILABLE", "type: is none"},
		{"no endpoints yet", add(clustersSource(xdsmsg.EDSCluster("a", "s")), absentResource(xdsmsg.SimpleEndpoints("s"), "REQUESTED", "")), nil, "",
			`has not answered for ClusterLoadAssignment "s"`},
		{"no endpoints", clustersSource(xdsmsg.EDSCluster("a", ""), xdsmsg.SimpleEndpoints("a")), nil, "UNAVAILABLE", "there are no endpoints"},
		{"sick endpoints", clustersSource(xdsmsg.EDSCluster("a", ""), xdsmsg.Endpoints("a", xdsmsg.Locality{
			Weight: 1, Endpoints: []xdsmsg.Endpoint{{Addr: "10.0.0.1:80", Health: corepb.HealthStatus_TIMEOUT}}})), nil, "UNAVAILABLE", "no endpoint is HEALTHY or UNKNOWN"},
		{"drops", clustersSource(xdsmsg.EDSCluster("a", ""), dropping), nil, "UNAVAILABLE", `all RPCs are dropped (drop_overloads, category "lb")`},
		{"inline", clustersSource(xdsmsg.InlineCluster("a", clusterpb.Cluster_STATIC, xdsmsg.In("z", "10.0.0.1:80"))), nil, "", "priority 0, 1 endpoint"},
		{"DNS", clustersSource(xdsmsg.InlineCluster("a", clusterpb.Cluster_STRICT_DNS, xdsmsg.In("z", "host:80"))), nil, "", "priority 0, 1 endpoint"},
		{"a loop", clustersSource(xdsmsg.AggregateCluster("a", "b"), xdsmsg.AggregateCluster("b", "a")), nil, "UNAVAILABLE", `leads back to cluster "a": "a" → "b" → "a"`},
		{"second member", clustersSource(xdsmsg.AggregateCluster("a", "b", "c"), xdsmsg.EDSCluster("b", ""), xdsmsg.SimpleEndpoints("b"),
			xdsmsg.EDSCluster("c", ""), xdsmsg.SimpleEndpoints("c", "10.0.0.1:80")), nil, "", `of it "c", priority 0, 1 endpoint`},
		{"no member", clustersSource(xdsmsg.AggregateCluster("a", "b"), xdsmsg.EDSCluster("b", ""), xdsmsg.SimpleEndpoints("b")), nil, "UNAVAILABLE",
			`no cluster under it can serve: "b": there are no endpoints`},
		{"a header's cluster", serving(byHeader, xdsmsg.PathRoute("/x/y", "c")), map[string][]string{"x-cluster": {"c"}}, "", `cluster "c", priority 0`},
		{"a header's unknown cluster", serving(byHeader), map[string][]string{"x-cluster": {"c"}}, "UNAVAILABLE", "which no route of the virtual host mentions"},
		{"a header missing", serving(byHeader), nil, "UNAVAILABLE", `does not have the header "x-cluster"`},
		{"no virtual host", sourceOf(xdsmsg.InlineListener("backend", xdsmsg.RouteConfig("", "other"))), nil, "UNAVAILABLE", `has no virtual host for authority "backend"`},
		{"no Listener", &Source{Client: Client{Name: "gRPC Go"}, Resources: []*Resource{absentResource(xdsmsg.DefaultListener("backend", "r"), "DOES_NOT_EXIST", "gone")}},
			nil, "UNAVAILABLE", `the client has no Listener "backend": gone`},
		{"a direct response", serving(&routepb.Route{Match: xdsmsg.Prefix("/"), Action: &routepb.Route_DirectResponse{
			DirectResponse: &routepb.DirectResponseAction{Status: 403, Body: &corepb.DataSource{Specifier: &corepb.DataSource_InlineString{InlineString: "no"}}}}}), nil,
			"PERMISSION_DENIED", "route 0 ends them with PERMISSION_DENIED: no"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e := mustExplain(t, tc.source, Request{Headers: tc.headers})
			if e.Code != tc.code || !strings.Contains(e.Outcome, tc.want) {
				t.Errorf("code %q, %s; want %q, %s", e.Code, e.Outcome, tc.code, tc.want)
			}
			e.Text() // It does not depend on parts that are missing.
		})
	}
}

// The state of a running channel takes precedence over what follows from the resources.
func TestLiveState(t *testing.T) {
	t.Parallel()
	s := clustersSource(xdsmsg.EDSCluster("a", ""), xdsmsg.SimpleEndpoints("a", "10.0.0.1:80", "10.0.0.2:80"))
	until := received.Add(time.Minute)
	s.Live = func(name string) (inspect.Cluster, bool) {
		return inspect.Cluster{
			Name: name, Phase: inspect.PhaseServing, State: inspect.Ready, Traffic: &inspect.Traffic{InFlight: 3},
			Priorities: []inspect.Priority{{Use: inspect.Use{InUse: true, Status: inspect.StatusReady}, State: inspect.Ready, Localities: []inspect.Locality{{
				Zone: "zone", Weight: 1, State: inspect.Ready, Endpoints: []inspect.Endpoint{
					{Addresses: []string{"10.0.0.1:80"}, Health: "HEALTHY", Weight: 1, State: inspect.Ready, Ejection: &inspect.Ejection{Until: until}},
					{Addresses: []string{"10.0.0.2:80"}, Health: "HEALTHY", Weight: 1, State: inspect.TransientFailure, Error: "connection refused", HealthCheck: "NOT_SERVING"},
				}}}}},
		}, name == "a"
	}
	text := mustExplain(t, s, Request{}).Text()
	for _, want := range []string{
		"1024 concurrent RPCs, now 3", "in use, READY: ready", "10.0.0.1:80  HEALTHY  weight 1  READY ejected until 2026-11-22 06:01:00 UTC",
		"TRANSIENT_FAILURE health check: NOT_SERVING", "connection refused",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text does not have %q:\n%s", want, text)
		}
	}
	settled := s.Live
	s.Live = func(name string) (inspect.Cluster, bool) {
		c, ok := settled(name)
		c.Priorities[0].Switching = true
		return c, ok
	}
	if want := `cluster "a": its policy has changed, and RPCs go to the endpoints of before`; !strings.Contains(mustExplain(t, s, Request{}).Text(), want) {
		t.Errorf("the text of a cluster whose policy changes does not have %q", want)
	}
	for phase, want := range map[inspect.Phase]string{inspect.PhaseFailed: "they fail with UNAVAILABLE: no such host", inspect.PhaseResolving: "they wait: no such host"} {
		s.Live = func(name string) (inspect.Cluster, bool) {
			return inspect.Cluster{Name: name, Phase: phase, State: inspect.TransientFailure, Unserved: phase == inspect.PhaseResolving, Error: "no such host"}, true
		}
		if e := mustExplain(t, s, Request{}); !strings.Contains(e.Outcome, want) {
			t.Errorf("%s: %s, want %s", phase, e.Outcome, want)
		}
	}
}

func TestLiveAggregate(t *testing.T) {
	t.Parallel()
	s := clustersSource(xdsmsg.AggregateCluster("a", "b", "c"), xdsmsg.EDSCluster("b", ""), xdsmsg.SimpleEndpoints("b", "10.0.0.1:80"),
		xdsmsg.EDSCluster("c", ""), xdsmsg.SimpleEndpoints("c", "10.0.0.2:80"))
	member := func(name string, inUse bool, state inspect.State) inspect.Member {
		return inspect.Member{Use: inspect.Use{InUse: inUse, Status: inspect.StatusReady}, Cluster: inspect.Cluster{
			Name: name, Phase: inspect.PhaseServing, State: state, Error: "its endpoint is " + string(state)}}
	}
	s.Live = func(name string) (inspect.Cluster, bool) {
		return inspect.Cluster{Name: name, Phase: inspect.PhaseServing, State: inspect.Ready, Members: []inspect.Member{
			member("b", false, inspect.TransientFailure), member("c", true, inspect.Ready)}}, name == "a"
	}
	e := mustExplain(t, s, Request{})
	if a := e.cluster("a"); a.InUse != "c" || a.Reason != "ready" || e.cluster("b").Error != "its endpoint is TRANSIENT_FAILURE" {
		t.Errorf("the aggregate cluster is %+v, the first member %+v", a, e.cluster("b"))
	}
}

// Where the first RPC to a cluster without connections goes follows from the resources.
func TestDormant(t *testing.T) {
	t.Parallel()
	dormant := func(name string) inspect.Cluster {
		return inspect.Cluster{Name: name, Phase: inspect.PhaseDormant, State: inspect.Idle, Priorities: []inspect.Priority{{
			Localities: []inspect.Locality{{Endpoints: []inspect.Endpoint{{Addresses: []string{"10.0.0.2:80"}, Health: "HEALTHY"}}}},
		}}}
	}
	members := []proto.Message{xdsmsg.AggregateCluster("a", "b", "c"), xdsmsg.EDSCluster("b", ""), xdsmsg.SimpleEndpoints("b"), xdsmsg.EDSCluster("c", "")}
	for name, tc := range map[string]struct {
		resources     []proto.Message
		outcome, code string
	}{
		"endpoints":    {[]proto.Message{xdsmsg.EDSCluster("a", ""), xdsmsg.SimpleEndpoints("a", "10.0.0.2:80")}, ", priority 0, 1 endpoint", ""},
		"a member":     {append(members, xdsmsg.SimpleEndpoints("c", "10.0.0.2:80")), `, of it "c", priority 0, 1 endpoint`, ""},
		"no endpoints": {append(members, xdsmsg.SimpleEndpoints("c")), ", where they fail with UNAVAILABLE: no cluster under it can serve", "UNAVAILABLE"},
	} {
		s := clustersSource(slices.Clone(tc.resources)...)
		s.Live = func(name string) (inspect.Cluster, bool) {
			d := dormant(name)
			if len(tc.resources) > 2 {
				d.Priorities, d.Members = nil, []inspect.Member{{Cluster: dormant("b")}, {Cluster: dormant("c")}}
			}
			return d, true
		}
		e := mustExplain(t, s, Request{})
		if !strings.HasPrefix(e.Outcome, `route 0 → cluster "a"`+tc.outcome) || e.Code != tc.code {
			t.Errorf("%s: outcome %q with code %q; want %q with %q", name, e.Outcome, e.Code, tc.outcome, tc.code)
		}
	}
}

// cluster returns the description of a cluster, or nil.
func (e *Explanation) cluster(name string) *Cluster { return e.clustersByName()[name] }

// Text of resources and peers cannot move a terminal's cursor or begin a line of its own.
func TestHostileTextIsText(t *testing.T) {
	t.Parallel()
	const evil = "\x1b[2J\nroute \u202e\x00\xff<script>"
	route := xdsmsg.PrefixRoute("/", "a")
	route.Name, route.Metadata = strings.ToValidUTF8(evil, ""), places("matches", strings.ToValidUTF8(evil, ""))
	s := sourceOf(xdsmsg.DefaultListener("backend", "r"), xdsmsg.RouteConfig("r", "*", route))
	r := absentResource(xdsmsg.EDSCluster("a", ""), "NACKED", evil)
	r.Server, r.ErrorVersion, s.Client.NodeID = evil, evil, evil
	s.Resources = append(s.Resources, r)
	e := mustExplain(t, s, Request{Headers: map[string][]string{"k": {evil}}})
	plain := mustExplain(t, clustersSource(), Request{})
	text := e.Text()
	for _, c := range text {
		if c != '\n' && !unicode.IsPrint(c) {
			t.Fatalf("the text has the character %q:\n%q", c, text)
		}
	}
	if got, want := strings.Count(text, "\n"), strings.Count(plain.Text(), "\n")+3; got > want {
		t.Errorf("the text has %d lines, more than %d:\n%s", got, want, text)
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ target, authority, endpoint string }{
		{"xds:///backend", "", "backend"}, {"backend", "", "backend"}, {"xds:backend", "", "backend"}, {"dynxds:///a/b", "", "a/b"},
		{"xds://auth/backend:80", "auth", "backend:80"}, {"backend:80", "", "backend:80"},
	} {
		authority, endpoint, err := ParseTarget(tc.target)
		if err != nil || authority != tc.authority || endpoint != tc.endpoint {
			t.Errorf("%s: %q, %q, %v; want %+v", tc.target, authority, endpoint, err, tc)
		}
	}
	for _, target := range []string{"", "xds:///", "xds://auth", "xds://a%zz/b"} {
		if _, _, err := ParseTarget(target); err == nil {
			t.Errorf("%q is accepted", target)
		}
	}
}

// The Listener of a target is found in any naming scheme, and the authority is gRPC's.
func TestListenerOfATarget(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, target, authority string }{
		{"backend:80", "xds:///backend:80", "backend:80"},
		{"xdstp://auth/envoy.config.listener.v3.Listener/backend", "xds:///backend", "backend"},
		{"xdstp://auth/envoy.config.listener.v3.Listener/a%20b", "xds://auth/a%20b", "a%20b"},
		{"mesh/listeners/backend", "backend", "backend"},
	} {
		s := sourceOf(xdsmsg.InlineListener(tc.name, xdsmsg.RouteConfig("", "*", xdsmsg.PrefixRoute("/", "a"))))
		e := mustExplain(t, s, Request{Target: tc.target})
		xdstest.Equal(t, "Listener of "+tc.target, tc.name, e.Request.Listener)
		xdstest.Equal(t, "authority of "+tc.target, tc.authority, e.Request.Authority)
	}
}

// Whether a Cluster's TLS is in force depends on the channel's credentials.
func TestSecurity(t *testing.T) {
	t.Parallel()
	secured := xdsmsg.EDSCluster("a", "")
	secured.TransportSocket = xdsmsg.TLSSocket(xdsmsg.UpstreamTLS("identity", "roots", "spiffe://mesh/a"))
	yes, no := true, false
	for _, tc := range []struct {
		usesXDS *bool
		want    string
	}{
		{nil, `mTLS, own certificate of "identity", roots of "roots", server SAN exact "spiffe://mesh/a"; only on channels with xDS credentials (gRFC A29)`},
		{&yes, `mTLS, own certificate of "identity", roots of "roots", server SAN exact "spiffe://mesh/a"`},
		{&no, `mTLS, own certificate of "identity", roots of "roots", server SAN exact "spiffe://mesh/a"; NOT IN FORCE: ` +
			"the channel's credentials are not those of google.golang.org/grpc/credentials/xds (gRFC A29)"},
	} {
		s := clustersSource(secured, xdsmsg.SimpleEndpoints("a", "10.0.0.1:80"))
		s.UsesXDS = tc.usesXDS
		xdstest.Equal(t, "security", tc.want, mustExplain(t, s, Request{}).Clusters[0].Settings.TLS)
	}
}
