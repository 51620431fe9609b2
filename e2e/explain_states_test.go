package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/testutils"
)

// states takes the resources of a channel through random states: valid and rejected versions, deletions, endpoints
// of which some are down, unhealthy or of a lower priority.
type states struct {
	*rand.Rand
	*mesh
	service string
	up      []*testutils.Backend
	down    string // an address that refuses connections
	deleted map[string]bool
	step    int
	stopped bool // the control plane
}

func (s *states) name(of string) string { return of + "." + s.service }

func anyOf[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func (s *states) endpoints(name string) *endpointpb.ClusterLoadAssignment {
	locality := func(priority int, health string, addr string) string {
		host, port, _ := strings.Cut(addr, ":")
		return fmt.Sprintf(`endpoints { locality { zone: "z%[1]d" } priority: %[1]d load_balancing_weight { value: 1 } lb_endpoints {
			health_status: %[2]s endpoint { address { socket_address { address: %[3]q port_value: %[4]s } } } } } `, priority, health, host, port)
	}
	drop := func(percent int) string {
		return fmt.Sprintf(`policy { drop_overloads { category: "c" drop_percentage { numerator: %d } } }`, percent)
	}
	one, two := anyOf(s.Rand, s.up...).Addr(), anyOf(s.Rand, s.up...).Addr()
	return with(&endpointpb.ClusterLoadAssignment{ClusterName: s.name(name)}, "%s", anyOf(s.Rand,
		"",
		locality(0, "HEALTHY", one),
		locality(0, "HEALTHY", one)+locality(1, "HEALTHY", two),
		locality(0, "UNKNOWN", s.down)+locality(1, "HEALTHY", two),
		locality(0, "UNHEALTHY", one)+locality(1, "UNKNOWN", two),
		locality(0, "DRAINING", one),
		locality(0, "HEALTHY", s.down),
		locality(0, "HEALTHY", one)+drop(100),
		locality(0, "HEALTHY", one)+drop(0),
		locality(1, "HEALTHY", one), // a gap, which is NACKed
	))
}

func (s *states) cluster(name string) *clusterpb.Cluster {
	c := with(xdsmsg.EDSCluster(s.name(name), ""), "%s", anyOf(s.Rand, "", "", "", "lb_policy: LEAST_REQUEST", "lb_policy: RING_HASH",
		"lb_policy: CLUSTER_PROVIDED", // It is NACKed.
		"circuit_breakers { thresholds { max_requests { value: 0 } } }"))
	switch s.IntN(8) {
	case 0: // The backends have no TLS: the handshake fails on channels with xDS credentials.
		return withSocket(c, tlsSocket())
	case 1: // NACKed, as the bootstrap does not have the provider.
		return withSocket(c, xdsmsg.TLSSocket(xdsmsg.UpstreamTLS("", "missing")))
	}
	return c
}

func (s *states) route() *routepb.Route {
	to := fmt.Sprintf("route { cluster: %q %%s } ", s.name(anyOf(s.Rand, "a", "b", "all", "all")))
	abort := fmt.Sprintf(`typed_per_filter_config { key: "fault" value {
		[type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault] { abort { grpc_status: %d percentage { numerator: 100 } } } } } `, 1+s.IntN(16))
	plain := fmt.Sprintf(to, "")
	return routeOf(`match { prefix: "" } %s`, anyOf(s.Rand, plain, plain, plain, plain, plain, plain+abort, fmt.Sprintf(to, `prefix_rewrite: "no"`),
		"direct_response { status: 404 }", "direct_response { status: 503 } "+abort, `redirect { path_redirect: "/x" }`,
		`route { cluster_header: "x-none" }`, "non_forwarding_action {}"))
}

// change changes some resources.
func (s *states) change() {
	s.step++
	routes := xdsmsg.RouteConfig(s.service, s.service, headerRoute("x-user", "7", s.name("b")), s.route(),
		xdsmsg.PathRoute("/a", s.name("a")), xdsmsg.PathRoute("/b", s.name("b")), xdsmsg.PathRoute("/all", s.name("all")))
	switch s.IntN(10) {
	case 0:
		routes.VirtualHosts[0].Domains = []string{"other"}
	case 1:
		routes.VirtualHosts[0].Domains = nil // It is NACKed.
	}
	all := []proto.Message{xdsmsg.DefaultListener(s.service, s.service, xdsmsg.Filter("fault", new(faultpb.HTTPFault))), routes}
	if s.step == 1 || s.deleted["all"] || s.IntN(3) == 0 {
		members := []string{s.name("a"), s.name("b")}
		s.Shuffle(2, func(i, j int) { members[i], members[j] = members[j], members[i] })
		all = append(all, xdsmsg.AggregateCluster(s.name("all"), members...))
	}
	for _, name := range []string{"a", "b"} {
		if s.step == 1 || s.IntN(2) == 0 {
			all = append(all, s.endpoints(name))
		}
		if s.step == 1 || s.deleted[name] || s.IntN(3) == 0 {
			all = append(all, s.cluster(name))
		}
	}
	clear(s.deleted)
	s.set(all)
	switch {
	case s.step == 1:
	case s.IntN(6) == 0: // What follows arrives later.
		s.Stop()
		s.stopped = true
	case s.stopped:
		s.restart()
		s.stopped = false
	case s.IntN(4) == 0:
		name := anyOf(s.Rand, "a", "b", "all")
		s.Delete(s.t, typeurl.Cluster, s.name(name))
		s.deleted[name] = true
	case s.IntN(10) == 0:
		s.Delete(s.t, typeurl.Listener, s.service)
	}
}

// differs returns in what an RPC, which a backend answered or which failed, differs from its explanation, or "".
func differs(e *explain.Explanation, address string, err error) string {
	got := status.Code(err)
	switch {
	case got == codes.DeadlineExceeded && e.Code != "DEADLINE_EXCEEDED":
		if !strings.Contains(e.Outcome, "wait") {
			return "the RPC waits"
		}
	case got != codes.OK && codes.Code(code.Code_value[e.Code]) != got:
		return fmt.Sprintf("the RPC fails with %v", err)
	case got == codes.OK && e.Code != "":
		return "the RPC is answered"
	case got == codes.OK:
		for _, c := range e.Clusters {
			if a := c.Assignment; a == nil || a.InUse() == nil || c.Share == 0 && e.Clusters[0].InUse != c.Name {
				continue
			}
			for _, l := range c.Assignment.InUse().Localities {
				for _, endpoint := range l.Endpoints {
					if endpoint.Addresses[0] == address && endpoint.Usable() && endpoint.Ejection == nil {
						return ""
					}
				}
			}
		}
		if strings.Contains(strings.Join(e.Notes, "\n"), "RPCs go to the endpoints of before") {
			return ""
		}
		return "the RPC is answered by " + address
	}
	return ""
}

// In every state that a channel comes to, an explanation is soon what happens to RPCs, and stays so.
func TestExplanationsAgreeInEveryState(t *testing.T) {
	t.Parallel()
	directly(t, "the control plane is stopped, which a relay hides")
	const seeds, steps = 8, 10
	for seed := range uint64(seeds) {
		xdstest.Parallel(t, fmt.Sprint("seed", seed), func(t *testing.T) {
			s := &states{Rand: rand.New(rand.NewPCG(31, seed)), service: ownService(t), deleted: make(map[string]bool)}
			var features []string
			if seed%2 == 1 {
				features = append(features, failOnDataErrors)
			}
			s.mesh = newMesh(t, features...)
			s.up = backends(t, "one", "two", "three")
			stopped := testutils.StartBackend(t, "stopped")
			s.down = stopped.Addr()
			stopped.Stop()
			s.change()
			var opts []grpc.DialOption
			if seed%3 == 0 {
				opts = append(opts, xdsCreds(t))
			}
			cc := s.dial("xds:///"+s.service, opts...)
			call(testutils.Context(t), cc, unary) // A channel that was not used is not known.
			for range steps {
				for _, md := range []metadata.MD{nil, metadata.Pairs("x-user", "7")} {
					s.await(t, cc, md)
				}
				s.change()
			}
		})
	}
}

// await waits until a number of RPCs one after the other are as explained.
func (s *states) await(t *testing.T, cc *grpc.ClientConn, md metadata.MD) {
	t.Helper()
	explained := func() *explain.Explanation {
		e, err := explain.InProcess(testutils.Context(t), explain.Request{Target: "xds:///" + s.service, Method: unaryMethod, Headers: md})
		xdstest.NoError(t, err)
		return e
	}
	deadline := time.Now().Add(30 * time.Second)
	for agreed := 0; agreed < 10; agreed++ {
		before, patience := explained(), time.Second
		if strings.Contains(before.Outcome, "wait") {
			patience /= 10 // each of the RPCs waits so long
		}
		ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(t.Context(), md), patience)
		id, err := call(ctx, cc, unary)
		cancel()
		address := ""
		if i := slices.IndexFunc(s.up, func(b *testutils.Backend) bool { return b.ID() == id }); i >= 0 {
			address = s.up[i].Addr()
		}
		e := explained()
		why := differs(e, address, err)
		if why == "" || differs(before, address, err) == "" {
			continue
		}
		if agreed = -1; time.Now().After(deadline) {
			t.Fatalf("step %d: %s, with %v; it is explained as:\n%s", s.step, why, md, e.Text())
		}
	}
}
