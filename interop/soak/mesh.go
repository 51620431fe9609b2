package soak

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"

	_ "github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/loopback"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// backends is how many there are, and allBackends are their numbers.
const backends = 6

var allBackends = []int{0, 1, 2, 3, 4, 5}

// types are the types of the resources of a mesh.
var types = []string{xdsmsg.ListenerType, xdsmsg.RouteType, xdsmsg.ClusterType, xdsmsg.EndpointType}

// mesh has the parts of a run: control planes over one store, relays, backends, and channels. The
// first control plane is disrupted, the second never is, and the third, which is too,
// serves only DPDS.
type mesh struct {
	control, second, policy *meshtest.Server
	// relays are in front of the first control plane.
	relays       map[through]*loopback.Server
	backends     []*backend
	channels     []*channel
	certificates *certificates
	pacing       *pacing
	// caches is the directory of the disk caches.
	caches string
}

// backend is a backend, and when it broke its connections.
type backend struct {
	*testutils.Backend
	mu      sync.Mutex
	crashes []time.Time
}

func newMesh(t testing.TB) *mesh {
	store, m := controlplane.NewStore(), &mesh{pacing: &pacing{stirred: time.Now()}, certificates: newCertificates(t), caches: t.TempDir(), relays: map[through]*loopback.Server{}}
	secure := grpc.Creds(m.certificates.server())
	start := func() *meshtest.Server {
		server := meshtest.Start(t, meshtest.Options{Store: store, GRPC: []grpc.ServerOption{secure}})
		server.Keep(100)
		return server
	}
	m.control, m.second, m.policy = start(), start(), start()
	for _, v := range relaying {
		m.relays[v] = m.startRelay(t, v)
	}
	for i := range backends {
		m.backends = append(m.backends, &backend{Backend: testutils.StartBackend(t, fmt.Sprint(i), secure)})
	}
	return m
}

func (m *mesh) addr(i int) string { return m.backends[i].Addr() }

// dial opens a channel of a client.
func (m *mesh) dial(t testing.TB, who client) *grpc.ClientConn {
	b, err := resolver.NewBuilder(who.bootstrap(m))
	xdstest.NoError(t, err)
	creds, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	xdstest.NoError(t, err)
	opts := []grpc.DialOption{dialFrom(who.name), grpc.WithResolvers(b),
		grpc.WithTransportCredentials(creds),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: patience})}
	cc, err := grpc.NewClient(who.target(), opts...)
	xdstest.NoError(t, err)
	return cc
}

// crash breaks every connection of the backend and refuses new ones.
func (b *backend) crash() {
	b.note()
	b.Stop()
}

// note notes that connections of the backend break now.
func (b *backend) note() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.crashes = append(b.crashes, time.Now())
}

// brokeIn reports whether a crash may have failed an RPC to the backend. A client does not
// notice a crash at once: what it sends before is lost.
func (b *backend) brokeIn(began, ended time.Time) bool {
	const unnoticed = time.Second
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.crashes, func(crash time.Time) bool {
		return !crash.After(ended) && crash.Add(unnoticed).After(began)
	})
}

// difference describes a difference between the resources of a client and those that the
// store has for it, or returns nil.
func (m *mesh) difference(who client, c *config) error {
	for _, of := range xdsclient.Clients() {
		if dump := of.Dump(); dump.Node.GetId() == who.name {
			return m.differenceOf(who, c, dump.Resources)
		}
	}
	return errors.New("there is no client")
}

func (m *mesh) differenceOf(who client, c *config, held []xdsclient.ResourceDump) error {
	want := c.keys(c.lane(who, c.routesKey().typeURL))
	if who.dpds != noDPDS {
		want[key{dynparam.MapTypeURL, who.dpds.resource()}] = true
	}
	for i := range held {
		r := &held[i]
		k := key{r.TypeURL, r.Name}
		if !want[k] {
			return fmt.Errorf("it subscribes to %v with %v, which is not used, or twice", k, r.Constraints)
		}
		delete(want, k)
		if k.typeURL == dynparam.MapTypeURL {
			if err := c.checkDPDS(who, r); err != nil {
				return err
			}
			continue
		}
		if !r.Constraints.Equal(c.constrained(who, k.typeURL).constraints()) {
			return fmt.Errorf("it subscribes to %v with %v, with the handout %v", k, r.Constraints, c.handouts[who.name])
		}
		if r.State != xdsclient.StateACKed || r.Failure != nil {
			return fmt.Errorf("%v is %v: %+v", k, r.State, r.Failure)
		}
		if of, _ := r.Parameters.Get(laneKey); lane(of) != c.lane(who, k.typeURL) {
			return fmt.Errorf("%v is that of lane %q, want %q", k, of, c.lane(who, k.typeURL))
		}
		stored, _ := m.control.Store().Choose(k.typeURL, k.name, r.Constraints)
		if stored == nil || !bytes.Equal(stored.Any().GetValue(), r.Any().GetValue()) {
			return fmt.Errorf("%v is not what the control plane has", k)
		}
	}
	for k := range want {
		return fmt.Errorf("%v is missing", k)
	}
	return nil
}
