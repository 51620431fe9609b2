package cluster_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/clustertls"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// proxyFixture runs one cluster on a channel that leaves nothing to the control plane. Its
// connections are seen by the addresses that they dial.
type proxyFixture struct{ *securedFixture }

func newProxyFixture(t testing.TB) proxyFixture {
	f := &securedFixture{}
	f.Fixture = lbtest.NewFixture(t, func(env *tree.Env, changed func()) *cluster.Secured {
		env.Pool = conns.NewPool(env.ClientConn, env.Loop.Post, time.Second)
		env.TLS = clustertls.NewPool(false, insecure.NewCredentials(), nil)
		return cluster.NewSecured(env, "backend", changed)
	})
	return proxyFixture{f}
}

// via is a locality of endpoints behind a proxy.
func via(proxy string, addrs ...string) xdsresource.Locality {
	l := at("a", 0, addrs...)
	for i := range l.Endpoints {
		l.Endpoints[i].Proxy = proxy
	}
	return l
}

// serve sets a cluster that asks for HTTP CONNECT or not.
func (f proxyFixture) serve(connect bool, localities ...xdsresource.Locality) {
	c := sticky(healthy|draining, localities...)
	c.Cluster.HTTPConnect = connect
	f.update(c)
}

// pickFor picks for an RPC of a session, and returns the endpoint that it reports.
func (f proxyFixture) pickFor(addr string) (dialled, host string) {
	f.T.Helper()
	d := rpcFor(addr)
	for range 3 {
		result, err := f.CC.State().Picker.Pick(balancer.PickInfo{Ctx: d})
		if err == nil {
			result.Done(balancer.DoneInfo{})
			return lbtest.Picked(result).Addr, d.Extra.HostOverride.Host()
		}
		synctest.Wait()
	}
	return "", ""
}

// A86-xds-http-connect.md, "Proposal": "we will now honor the Http11ProxyUpstreamTransport
// transport socket wrapper regardless of whether XdsCredentials is used", and without a proxy
// "the behavior will be exactly the same as if the wrapper was not present".
func TestProxies(t *testing.T) {
	t.Parallel()
	test := func(run func(*testing.T, proxyFixture)) func(*testing.T) { return lbtest.Subtest(newProxyFixture, run) }
	t.Run("through the proxy", test(func(t *testing.T, f proxyFixture) {
		f.serve(true, via("p:1", "a:1"))
		f.Expect("at first", "p:1")
		f.serve(true, via("p:1", "a:1"))
		f.ExpectMade("after an update without a change", "p:1", 1)
		f.ExpectOpen("at the end", "p:1")
	}))
	t.Run("without the wrapper", test(func(t *testing.T, f proxyFixture) {
		f.serve(false, via("p:1", "a:1"))
		f.Expect("at first", "a:1")
		f.serve(false, via("q:1", "a:1"))
		f.ExpectOpen("after a change of the proxy, which has no meaning", "a:1")
		f.ExpectMade("after a change of the proxy", "a:1", 1)
	}))
	t.Run("some endpoints have none", test(func(t *testing.T, f proxyFixture) {
		l := via("p:1", "a:1", "b:1")
		l.Endpoints[1].Proxy = ""
		f.serve(true, l)
		f.ExpectOpen("at first", "b:1", "p:1")
	}))
	t.Run("endpoints behind one proxy share nothing", test(func(t *testing.T, f proxyFixture) {
		f.serve(true, via("p:1", "a:1", "b:1"))
		f.ExpectOpen("both", "p:1", "p:1")
		f.serve(true, via("p:1", "a:1"))
		f.serve(true, via("p:1", "c:1"))
		f.ExpectMade("to three endpoints", "p:1", 3)
	}))
	t.Run("an endpoint that returns in time gets its connection", test(func(t *testing.T, f proxyFixture) {
		f.serve(true, via("p:1", "a:1", "b:1"))
		f.serve(true, via("p:1", "a:1"))
		f.serve(true, via("p:1", "a:1", "b:1"))
		f.ExpectMade("to two endpoints", "p:1", 2)
	}))
	t.Run("another proxy", test(func(t *testing.T, f proxyFixture) {
		f.serve(true, via("p:1", "a:1"))
		f.serve(true, via("q:1", "a:1"))
		f.Expect("at once", "q:1")
		f.ExpectOpen("for a moment", "p:1", "q:1")
		f.sleep(time.Second)
		f.ExpectOpen("after it", "q:1")
		f.serve(true, at("a", 0, "a:1"))
		f.Expect("without a proxy", "a:1")
	}))
	t.Run("the wrapper comes", test(func(t *testing.T, f proxyFixture) {
		f.Network.Set("p:1", lbtest.Silent)
		f.serve(false, via("p:1", "a:1"))
		f.serve(true, via("p:1", "a:1"))
		f.Expect("while the new connection is made", "a:1")
		f.sleep(time.Second)
		f.Expect("if that is not made in time", lbtest.Waits)
		f.Network.Set("p:1", lbtest.Up)
		f.Expect("when it is made", "p:1")
		f.sleep(time.Second)
		f.ExpectOpen("at the end", "p:1")
	}))
	t.Run("a proxy that fails", test(func(t *testing.T, f proxyFixture) {
		f.Network.Set("p:1", lbtest.Refused)
		f.serve(true, via("p:1", "a:1"))
		f.Expect("at first", "connection refused")
		f.ExpectMade("to the endpoint itself", "a:1", 0)
	}))
	t.Run("sessions", test(func(t *testing.T, f proxyFixture) {
		expect := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if dialled, host := f.pickFor("a:1"); dialled != want || host != "a:1" {
				t.Errorf("%s: a pick goes to %q and reports %q, want %q and the endpoint's own address", when, dialled, host, want)
			}
		}
		f.serve(true, via("p:1", "a:1", "b:1"))
		expect("at first", "p:1")
		// Nothing but the session connects to a DRAINING endpoint.
		f.serve(true, drain(via("p:1", "a:1", "b:1"), "a:1"))
		expect("while the endpoint drains", "p:1")
		f.ExpectMade("while the endpoint drains", "p:1", 2)
		f.serve(true, drain(via("q:1", "a:1", "b:1"), "a:1"))
		expect("with another proxy", "q:1")
		f.sleep(time.Second)
		if open := f.CC.Open(); slices.Contains(open, "p:1") || slices.Contains(open, "a:1") {
			t.Errorf("connections to %v are open", open)
		}
	}))
}

// The address of the proxy is seen by nothing but the dialler: not by load reports, outlier
// detection or hashing, all of which go by the address that a leaf has.
func TestIdentityBehindAProxy(t *testing.T) {
	lbtest.Subtest(newProxyFixture, func(t *testing.T, f proxyFixture) {
		f.serve(true, via("p:1", "a:1", "b:1"))
		synctest.Wait()
		seen := map[string]bool{}
		for range 20 {
			// Of an endpoint that is not there: the pick reports another one.
			dialled, host := f.pickFor("c:1")
			if dialled != "p:1" {
				t.Errorf("a pick goes to %q, want p:1", dialled)
			}
			seen[host] = true
		}
		if len(seen) != 2 || !seen["a:1"] || !seen["b:1"] {
			t.Errorf("picks go to the endpoints %v, want a:1 and b:1", seen)
		}
	})(t)
}
