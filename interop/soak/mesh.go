package soak

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	_ "github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/testutils/xdsmsg"
	"github.com/dynxds/dynxds/xdsclient"
)

// backends is how many there are.
const backends = 6

// variants are the channels of a mesh: the bootstrap of each.
var variants = map[string]func(m *mesh) []byte{
	"SotW": func(m *mesh) []byte {
		return m.control.Bootstrap("SotW")
	},
	"delta": func(m *mesh) []byte {
		return m.control.Bootstrap("delta", testutils.ServerFeatures("delta"))
	},
	"delta with another server to fall back to": func(m *mesh) []byte {
		return m.control.Bootstrap("delta with another server to fall back to",
			testutils.ServerFeatures("delta"), testutils.FurtherServer(m.second.Addr(), "delta"))
	},
}

// types are the types of the resources of a mesh.
var types = []string{xdsmsg.ListenerType, xdsmsg.RouteType, xdsmsg.ClusterType, xdsmsg.EndpointType}

// mesh is the processes of a run, so to speak: two control planes over one
// store, the first of which misbehaves, backends, and channels.
type mesh struct {
	control, second *testutils.FakeServer
	backends        []*backend
	channels        []*channel
}

// backend is a backend, and when it broke its connections.
type backend struct {
	*testutils.Backend
	// sure says that it was up when the mesh settled, and since then. It is
	// the driver's alone.
	sure bool

	mu      sync.Mutex
	crashes []time.Time
}

// channel is a channel, named by its variant.
type channel struct {
	name string
	cc   *grpc.ClientConn
	traffic
}

func newMesh(t testing.TB) *mesh {
	store := controlplane.NewStore()
	m := &mesh{
		control: testutils.StartFakeServer(t, testutils.OverStore(store), testutils.KeepRequests(100)),
		second:  testutils.StartFakeServer(t, testutils.OverStore(store), testutils.KeepRequests(100)),
	}
	for i := range backends {
		m.backends = append(m.backends, &backend{Backend: testutils.StartBackend(t, fmt.Sprint(i)), sure: true})
	}
	return m
}

func (m *mesh) addr(i int) string { return m.backends[i].Addr() }

// dial opens a channel of one of the variants.
func (m *mesh) dial(t testing.TB, variant string) *grpc.ClientConn {
	b, err := resolver.NewBuilder(variants[variant](m))
	if err != nil {
		t.Fatal(err)
	}
	quick := backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 200 * time.Millisecond}
	cc, err := grpc.NewClient("xds:///"+service, grpc.WithResolvers(b),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: patience}))
	if err != nil {
		t.Fatal(err)
	}
	return cc
}

// crash breaks every connection of the backend and refuses new ones.
func (b *backend) crash() {
	b.mu.Lock()
	b.crashes = append(b.crashes, time.Now())
	b.mu.Unlock()
	b.Stop()
}

// brokeIn reports whether an RPC on a connection to the backend may have failed
// by a crash. A client does not know of a crash at once: what it sends in
// between is lost.
func (b *backend) brokeIn(began, ended time.Time) bool {
	const unnoticed = time.Second
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.crashes, func(crash time.Time) bool {
		return crash.Before(ended) && crash.Add(unnoticed).After(began)
	})
}

// difference says what the client of a variant holds that is not what the
// store has of the configuration, empty if there is nothing.
func (m *mesh) difference(variant string, c *config) string {
	want := c.keys()
	for _, client := range xdsclient.Clients() {
		dump := client.Dump()
		if dump.Node.GetId() != variant {
			continue
		}
		for i := range dump.Resources {
			r := &dump.Resources[i]
			k := key{r.TypeURL, r.Name}
			if !want[k] {
				return fmt.Sprintf("it asks for %v, which is not used", k)
			}
			delete(want, k)
			if r.State != xdsclient.StateACKed || r.Failure != nil {
				return fmt.Sprintf("%v is %v: %+v", k, r.State, r.Failure)
			}
			if stored := m.control.Store().Get(k.typeURL, k.name); !bytes.Equal(stored.Any().GetValue(), r.Any().GetValue()) {
				return fmt.Sprintf("%v is not what the control plane has", k)
			}
		}
		for k := range want {
			return fmt.Sprintf("%v is missing", k)
		}
		return ""
	}
	return "there is no client"
}
