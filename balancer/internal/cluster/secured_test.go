package cluster_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/clustertls"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// securedFixture runs one cluster, whose connections linger for a second. Connections that are
// secured by a context have its name added to their addresses.
type securedFixture struct {
	*lbtest.Fixture[*cluster.Secured]
	securities map[string]*xdsresource.Security
	closed     atomic.Int64 // certificate providers
}

func newSecuredFixture(obeys bool) func(testing.TB) *securedFixture {
	return func(t testing.TB) *securedFixture {
		f := &securedFixture{securities: map[string]*xdsresource.Security{"none": nil}}
		f.Fixture = lbtest.NewFixture(t, func(env *tree.Env, changed func()) *cluster.Secured {
			env.Pool = conns.NewPool(env.ClientConn, env.Loop.Post, time.Second)
			env.TLS = clustertls.NewPool(obeys, nil, nil)
			return cluster.NewSecured(env, "backend", changed)
		})
		provider := &bootstrap.CertificateProvider{Buildable: certprovider.NewBuildableConfig(t.Name(), nil,
			func(certprovider.BuildOptions) certprovider.Provider { return &countedProvider{closed: &f.closed} })}
		// Each of "old" and "new" does for the other; they differ in the server name that is sent.
		f.securities["old"] = decodeSecurity(t, `sni: "old"`, provider)
		f.securities["new"] = decodeSecurity(t, `sni: "new"`, provider)
		f.securities["strict"] = decodeSecurity(t, `sni: "old"`, provider, "san")
		f.CC.Tag = func(b credentials.Bundle) string {
			for name, s := range f.securities {
				of, release := f.Env.TLS.Acquire("backend", &xdsresource.Cluster{Security: s})
				release()
				switch {
				case of != b:
				case s == nil:
					return ""
				default:
					return " " + name
				}
			}
			return " unknown"
		}
		return f
	}
}

type countedProvider struct{ closed *atomic.Int64 }

func (*countedProvider) KeyMaterial(context.Context) (*certprovider.KeyMaterial, error) {
	return nil, errors.New("not used")
}

func (p *countedProvider) Close() { p.closed.Add(1) }

func decodeSecurity(t testing.TB, fields string, provider *bootstrap.CertificateProvider, sans ...string) *xdsresource.Security {
	t.Helper()
	c := xdsmsg.EDSCluster("backend", "")
	c.TransportSocket = xdsmsg.TLSSocket(xdsmsg.With(xdsmsg.UpstreamTLS("", "roots", sans...), "%s", fields))
	value, err := xdsresource.ClusterType.Decode(xdsmsg.Any(c), xdsclient.DecodeOptions{Bootstrap: &bootstrap.Config{
		CertificateProviders: map[string]*bootstrap.CertificateProvider{"roots": provider},
	}})
	xdstest.NoError(t, err)
	return value.(*xdsresource.Cluster).Security
}

// secure has the cluster ask for a context by name, with one endpoint.
func (f *securedFixture) secure(name string) {
	f.Update(func() { f.secureOnLoop(name) })
}

func (f *securedFixture) secureOnLoop(name string) {
	c := lbtest.Cluster("backend")
	c.Security = f.securities[name]
	f.Policy.Update(&cluster.Config{Cluster: c, Endpoints: endpoints(at("a", 0, "a:1"))})
}

func (f *securedFixture) update(c cluster.Config) { f.Update(func() { f.Policy.Update(&c) }) }

func (f *securedFixture) sleep(d time.Duration) {
	time.Sleep(d) // in the bubble
	synctest.Wait()
}

func testSecured(obeys bool, run func(*testing.T, *securedFixture)) func(*testing.T) {
	return lbtest.Subtest(newSecuredFixture(obeys), run)
}

func TestSecured(t *testing.T) {
	t.Parallel()
	t.Run("another context", testSecured(true, func(t *testing.T, f *securedFixture) {
		f.secure("old")
		f.Expect("at first", "a:1 old")
		f.Network.Set("a:1 new", lbtest.Silent)
		f.secure("new")
		f.Expect("while the new connection is made", "a:1 old")
		f.ExpectOpen("while the new connection is made", "a:1 new", "a:1 old")
		f.Network.Set("a:1 new", lbtest.Up)
		f.Expect("when it is made", "a:1 new")
		f.sleep(time.Second)
		f.ExpectOpen("after a moment", "a:1 new")
	}))
	t.Run("a new connection that is not made in time", testSecured(true, func(t *testing.T, f *securedFixture) {
		f.secure("old")
		f.Network.Set("a:1 new", lbtest.Silent)
		f.secure("new")
		f.sleep(time.Second - 1)
		f.Expect("before the linger is over", "a:1 old")
		f.sleep(1)
		f.Expect("after it", lbtest.Waits)
		f.Network.Set("a:1 new", lbtest.Refused)
		f.Expect("when it fails", "connection refused")
	}))
	t.Run("a third context does not extend the time of the first", testSecured(true, func(t *testing.T, f *securedFixture) {
		f.secure("old")
		f.Network.Set("a:1 new", lbtest.Silent)
		f.Network.Set("a:1", lbtest.Silent)
		f.secure("new")
		f.sleep(time.Second / 2)
		f.secure("none")
		f.Expect("in the meantime", "a:1 old")
		f.sleep(time.Second / 2)
		f.Expect("after the time of the first", lbtest.Waits)
	}))
	t.Run("back to the first context", testSecured(true, func(t *testing.T, f *securedFixture) {
		f.secure("old")
		f.Network.Set("a:1 new", lbtest.Silent)
		f.secure("new")
		f.secure("old")
		f.sleep(time.Second / 2)
		f.Expect("later", "a:1 old")
		f.ExpectMade("later", "a:1 old", 1)
		// The next change has its own time.
		f.secure("new")
		f.sleep(time.Second - 1)
		f.Expect("in the time of the next change", "a:1 old")
		f.sleep(1)
		f.Expect("after it", lbtest.Waits)
	}))
	t.Run("a change after one that is complete", testSecured(true, func(t *testing.T, f *securedFixture) {
		f.secure("old")
		f.Network.Set("a:1 new", lbtest.Silent)
		f.secure("new")
		f.sleep(time.Second / 2)
		f.Network.Set("a:1 new", lbtest.Up)
		f.Expect("when the new connection is made", "a:1 new")
		f.Network.Set("a:1 old", lbtest.Silent)
		f.ExpectOpen("when the old connection, which lingered, is lost", "a:1 new")
		f.secure("old")
		f.sleep(time.Second - 1)
		f.Expect("in the time of the second change", "a:1 new")
	}))
	t.Run("a deadline that passes while the loop takes the change back", testSecured(true, func(t *testing.T, f *securedFixture) {
		f.secure("old")
		f.Network.Set("a:1 new", lbtest.Silent)
		f.secure("new")
		f.Loop.Do(func() {
			time.Sleep(time.Second) // in the bubble
			f.secureOnLoop("old")
			f.secureOnLoop("new")
		})
		f.Expect("in the time of the next change", "a:1 old")
	}))
	t.Run("nothing goes on in plaintext", testSecured(true, func(t *testing.T, f *securedFixture) {
		f.secure("none")
		f.Expect("at first", "a:1")
		f.Network.Set("a:1 new", lbtest.Silent)
		f.secure("new")
		f.Expect("while the new connection is made", lbtest.Waits)
		f.Network.Set("a:1 new", lbtest.Up)
		f.Expect("when it is made", "a:1 new")
	}))
	t.Run("nothing goes on when the Cluster gets stricter", testSecured(true, func(t *testing.T, f *securedFixture) {
		f.secure("old")
		f.Expect("at first", "a:1 old")
		f.Network.Set("a:1 strict", lbtest.Silent)
		f.secure("strict")
		f.Expect("while the new connection is made", lbtest.Waits)
		f.Network.Set("a:1 strict", lbtest.Refused)
		f.Expect("when it fails", "connection refused")
		f.Network.Set("a:1 strict", lbtest.Up)
		f.sleep(time.Minute) // gRPC's backoff
		f.Expect("when it is made", "a:1 strict")
	}))
	t.Run("nothing goes on when the Cluster gets stricter in the middle of a change", testSecured(true, func(t *testing.T, f *securedFixture) {
		f.secure("old")
		f.Network.Set("a:1 new", lbtest.Silent)
		f.secure("new")
		f.Network.Set("a:1 strict", lbtest.Silent)
		f.Expect("before", "a:1 old")
		f.secure("strict")
		f.Expect("afterwards", lbtest.Waits)
	}))
	t.Run("nothing goes on while the endpoints of a stricter Cluster are not known", testSecured(true, func(t *testing.T, f *securedFixture) {
		f.secure("old")
		c := lbtest.Cluster("backend")
		c.Security = f.securities["strict"]
		f.update(cluster.Config{Cluster: c})
		f.Expect("before there are endpoints", lbtest.Waits)
		f.secure("strict")
		f.Expect("with endpoints", "a:1 strict")
	}))
	t.Run("no longer so strict", testSecured(true, func(t *testing.T, f *securedFixture) {
		f.secure("strict")
		f.Network.Set("a:1 old", lbtest.Silent)
		f.secure("old")
		f.Expect("while the new connection is made", "a:1 strict")
	}))
	t.Run("no longer secured", testSecured(true, func(t *testing.T, f *securedFixture) {
		f.secure("old")
		f.secure("none")
		f.Expect("at the end", "a:1")
	}))
	t.Run("an unrelated change", testSecured(true, func(t *testing.T, f *securedFixture) {
		f.secure("old")
		f.secure("old")
		f.ExpectMade("after an update", "a:1 old", 1)
	}))
	t.Run("an error in the middle of a change", testSecured(true, func(t *testing.T, f *securedFixture) {
		f.secure("old")
		f.Network.Set("a:1 new", lbtest.Silent)
		f.secure("new")
		f.update(cluster.Config{Err: errors.New("withdrawn")})
		f.Expect("afterwards", "withdrawn")
		f.ExpectState("afterwards", connectivity.TransientFailure)
		f.sleep(2 * time.Second)
		f.ExpectOpen("later")
	}))
	for name, c := range map[string]cluster.Config{
		"the Cluster goes":    {Endpoints: endpoints(at("a", 0, "a:1"))},
		"its endpoints go":    {Cluster: lbtest.Cluster("backend")},
		"an error beside all": {Cluster: lbtest.Cluster("backend"), Endpoints: endpoints(at("a", 0, "a:1")), Err: errors.New("withdrawn")},
	} {
		t.Run(name+" in the middle of a change", testSecured(true, func(t *testing.T, f *securedFixture) {
			f.secure("old")
			f.Network.Set("a:1 new", lbtest.Silent)
			f.secure("new")
			f.Expect("before", "a:1 old")
			if c.Cluster != nil {
				c.Cluster.Security = f.securities["new"]
			}
			f.update(c)
			want := lbtest.Waits
			if c.Err != nil {
				want = "withdrawn"
			}
			f.Expect("afterwards", want)
		}))
	}
	t.Run("closed in the middle of a change", testSecured(true, func(t *testing.T, f *securedFixture) {
		f.secure("old")
		f.Network.Set("a:1 new", lbtest.Silent)
		f.secure("new")
		f.Close()
		before := f.CC.Updates()
		f.sleep(time.Minute)
		xdstest.Equal(t, "updates after the end", before, f.CC.Updates())
		f.ExpectOpen("after the end")
	}))
	t.Run("a channel that does not obey", testSecured(false, func(t *testing.T, f *securedFixture) {
		f.secure("none")
		f.secure("new")
		f.secure("old")
		f.Expect("at the end", "a:1")
		f.ExpectMade("at the end", "a:1", 1)
	}))
	t.Run("certificate providers live as long as connections", testSecured(true, func(t *testing.T, f *securedFixture) {
		f.secure("old")
		f.secure("none")
		xdstest.Equal(t, "providers are closed while a connection lingers", 0, f.closed.Load())
		f.sleep(time.Second)
		xdstest.Equal(t, "providers are closed when no connection is left", 1, f.closed.Load())
	}))
}
