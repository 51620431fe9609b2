package controlplane_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/testutils/xdsmsg"
)

const universe = 12

func randomName(rng *rand.Rand) string { return fmt.Sprintf("n%d", rng.IntN(universe)) }

// Random updates and changes of subscription over many streams at once: in the
// end each client knows exactly what the store holds of what it asks for.
func TestServer_EveryClientConverges(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	var actors, readers sync.WaitGroup
	var clients []*churner
	for i := range 8 {
		c := newChurner(ctx, t, s, uint64(i))
		clients = append(clients, c)
		readers.Go(c.read)
		actors.Go(c.churn)
	}
	actors.Go(func() { churnStore(t, s.store) })
	actors.Wait()
	for i, c := range clients {
		if !c.converges(ctx, s.store) {
			t.Errorf("client %d does not know the final state", i)
		}
	}
	cancel()
	readers.Wait()
}

func churnStore(t *testing.T, store *controlplane.Store) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		_, err := store.Update(func(tx *controlplane.Tx) {
			for range rng.IntN(3) + 1 {
				name, variant := randomName(rng), fmt.Sprint(rng.IntN(1000))
				if rng.IntN(4) == 0 {
					tx.Delete(cds, name)
				} else {
					tx.Set(changed(name, variant))
				}
				tx.Set(xdsmsg.RouteConfig(name, variant))
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// churner is a client that changes its mind at random.
type churner struct {
	t       *testing.T
	stream  discoverypb.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	rng     *rand.Rand
	learned chan struct{}

	mu    sync.Mutex
	types map[string]*churnType
}

// churnType is what the client knows and wants of one type.
type churnType struct {
	last   *discoverypb.DiscoveryResponse
	wanted []string
	known  map[string]string
}

func newChurner(ctx context.Context, t *testing.T, s *testServer, seed uint64) *churner {
	t.Helper()
	stream, err := discoverypb.NewAggregatedDiscoveryServiceClient(s.conn).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &churner{
		t: t, stream: stream,
		rng:     rand.New(rand.NewPCG(2, seed)),
		learned: make(chan struct{}, 1),
		types: map[string]*churnType{
			cds: {known: map[string]string{}},
			rds: {known: map[string]string{}},
		},
	}
}

func (c *churner) churn() {
	for range 200 {
		for _, typeURL := range []string{cds, rds} {
			c.mu.Lock()
			// At least one name: without any, Clusters would be a wildcard.
			c.types[typeURL].wanted = []string{"never"}
			for i := range universe {
				if c.rng.IntN(2) == 0 {
					c.types[typeURL].wanted = append(c.types[typeURL].wanted, fmt.Sprintf("n%d", i))
				}
			}
			c.ask(typeURL)
			c.mu.Unlock()
		}
	}
}

// ask sends what is wanted, as an answer to the last response.
func (c *churner) ask(typeURL string) {
	ct := c.types[typeURL]
	if err := c.stream.Send(&discoverypb.DiscoveryRequest{
		TypeUrl: typeURL, ResourceNames: ct.wanted,
		VersionInfo: ct.last.GetVersionInfo(), ResponseNonce: ct.last.GetNonce(),
	}); err != nil {
		c.t.Error(err)
	}
}

func (c *churner) read() {
	for {
		resp, err := c.stream.Recv()
		if err != nil {
			return // the test is over, or fails as nothing is learned
		}
		c.mu.Lock()
		c.learn(resp)
		c.ask(resp.GetTypeUrl())
		c.mu.Unlock()
		select {
		case c.learned <- struct{}{}:
		default:
		}
	}
}

func (c *churner) learn(resp *discoverypb.DiscoveryResponse) {
	ct := c.types[resp.GetTypeUrl()]
	ct.last = resp
	if resp.GetTypeUrl() == cds {
		clear(ct.known)
	}
	for _, packed := range resp.GetResources() {
		m, err := packed.UnmarshalNew()
		if err != nil {
			c.t.Error(err)
			return
		}
		ct.known[m.(interface{ GetName() string }).GetName()] = string(packed.GetValue())
	}
}

func (c *churner) converges(ctx context.Context, store *controlplane.Store) bool {
	for !c.agrees(store) {
		select {
		case <-c.learned:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// agrees says whether the client knows, of what it wants, exactly what the
// store has. No RouteConfiguration is ever deleted.
func (c *churner) agrees(store *controlplane.Store) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for typeURL, ct := range c.types {
		for _, name := range ct.wanted {
			r := store.Get(typeURL, name)
			known, ok := ct.known[name]
			if ok != (r != nil) || ok && known != string(r.Any().GetValue()) {
				return false
			}
		}
	}
	return true
}
