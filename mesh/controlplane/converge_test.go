package controlplane_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// TestClientsConverge has clients that watch and streams that break, while resources, variants, errors and the constraints of nodes
// change. In the end each client has exactly what the store has for it. What TestCheck follows event by event happens here at once.
func TestClientsConverge(t *testing.T) {
	t.Parallel()
	for name, demand := range map[string]bool{"a store": false, "in pieces": false, "a source": true} {
		for seed := range uint64(3) {
			xdstest.Parallel(t, fmt.Sprint(name, " ", seed), func(t *testing.T) {
				converge(t, newConvergence(t, seed, demand, name == "in pieces"))
			})
		}
	}
}

func converge(t *testing.T, c *convergence) {
	var clients []*watchingClient
	for i, features := range [][]string{nil, {"delta"}, {"dynamic_parameter_constraints"}, {"delta", "dynamic_parameter_constraints"}} {
		clients = append(clients, c.client(t, rand.New(rand.NewPCG(uint64(i), 7)), features...))
	}
	for range 12 {
		var actors sync.WaitGroup
		for _, client := range clients {
			actors.Go(client.act)
		}
		actors.Go(func() {
			for range c.rng.IntN(8) {
				c.change(t)
			}
		})
		actors.Go(func() {
			c.of.Store(int64(c.nodes.IntN(len(c.constraints))))
			c.server.Control().RefreshNodeConstraints(nil)
			if c.nodes.IntN(3) == 0 {
				c.server.BreakStreams(errors.New("broken"))
			}
		})
		actors.Wait()
		for _, client := range clients {
			client.check(t)
		}
	}
}

// convergence is a control plane whose resources and constraints of nodes change.
type convergence struct {
	server *meshtest.Server
	// front is the store that clients are served from, and back what it should have for them.
	front, back *controlplane.Store
	rng, nodes  *rand.Rand
	constraints []dynparam.Constraints
	// of are the constraints of all nodes, as an index.
	of atomic.Int64

	mu sync.Mutex
	// demands are those that a source answers; nil if there is none.
	demands map[*controlplane.Demand]struct{}
}

func newConvergence(t *testing.T, seed uint64, demand, pieces bool) *convergence {
	c := &convergence{
		front: controlplane.NewStore(), back: controlplane.NewStore(),
		rng: rand.New(rand.NewPCG(seed, 1)), nodes: rand.New(rand.NewPCG(seed, 2)),
		constraints: []dynparam.Constraints{
			{}, xdstest.Constraints("env=prod"), xdstest.Constraints("env=test"), xdstest.Constraints("shard=1"),
			xdstest.Constraints("shard=0-1"), xdstest.Constraints("env=prod", "shard=0-3"),
		},
	}
	if pieces {
		controlplane.SetPace(c.front, 2)
	}
	if demand {
		c.demands = make(map[*controlplane.Demand]struct{})
		c.front.OnDemand("", c.demand)
	}
	opts := controlplane.Options{NotFoundErrors: true, WrapResources: true, MaxResponseSize: 200, NodeConstraints: func(*corepb.Node) dynparam.ByType {
		byType, err := dynparam.NewByType(map[string]dynparam.Constraints{"*": c.constraints[c.of.Load()]})
		if err != nil {
			t.Error(err)
		}
		return byType
	}}
	c.server = meshtest.Start(t, meshtest.Options{Store: c.front, Control: opts})
	return c
}

// demand is the source, which answers as back has it.
func (c *convergence) demand(begun, ended []*controlplane.Demand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range begun {
		c.demands[d] = struct{}{}
	}
	for _, d := range ended {
		delete(c.demands, d)
	}
	c.front.Update(c.answer)
}

func (c *convergence) answer(tx *controlplane.Tx) {
	for d := range c.demands {
		r, st := c.back.Choose(d.TypeURL, d.Name, d.Constraints)
		switch {
		case d.Collection():
			tx.Answer(d, nil)
		case st != nil:
			tx.AnswerError(d, st)
		default:
			tx.Answer(d, r)
		}
	}
}

// convergingTypes are a type with complete responses and one without.
var convergingTypes = []*xdsclient.ResourceType{
	{TypeURL: cds, Name: "Cluster", FullStateInSotW: true, Nameless: true, Decode: decodeText},
	{TypeURL: rds, Name: "RouteConfiguration", Nameless: true, Decode: decodeText},
}

func decodeText(m *anypb.Any, _ xdsclient.DecodeOptions) (any, error) {
	return string(m.GetValue()), nil
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

func globOf(of *xdsclient.ResourceType) string {
	return "xdstp://a/" + strings.TrimPrefix(of.TypeURL, "type.googleapis.com/") + "/d/*"
}

func convergingNames(of *xdsclient.ResourceType) []string {
	folder := strings.TrimSuffix(globOf(of), "*")
	return []string{"a", "b", "c", folder + "x", folder + "y"}
}

// change changes the store.
func (c *convergence) change(t *testing.T) {
	of := pick(c.rng, convergingTypes)
	name, content := pick(c.rng, convergingNames(of)), fmt.Sprint(c.rng.IntN(5))
	p := pick(c.rng, []map[string]string{nil, parameters("env", "prod"), parameters("env", "test"), parameters("shard", "1"), parameters("env", "prod", "shard", "2")})
	kind := c.rng.IntN(10)
	change := func(tx *controlplane.Tx) {
		switch kind {
		case 0:
			tx.Delete(of.TypeURL, name)
		case 1:
			tx.SetError(of.TypeURL, name, status.New(codes.PermissionDenied, content))
		case 2, 3:
			tx.DeleteVariant(of.TypeURL, name, p)
		default:
			tx.SetNamed(name, p, variant(of.TypeURL, content))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.back.Update(change)
	xdstest.NoError(t, err)
	_, err = c.front.Update(func(tx *controlplane.Tx) {
		change(tx)
		c.answer(tx)
	})
	xdstest.NoError(t, err)
}

// watchingClient is a client of the control plane, with its watches.
type watchingClient struct {
	*xdsclient.XDSClient
	of              *convergence
	rng             *rand.Rand
	delta, locators bool
	watches         map[string]*textWatch
}

func (c *convergence) client(t *testing.T, rng *rand.Rand, features ...string) *watchingClient {
	cfg, err := bootstrap.Parse("test", c.server.Bootstrap("n",
		testutils.ServerFeatures(append(features, "fail_on_data_errors")...), testutils.Authority("a", "", nil)))
	xdstest.NoError(t, err)
	client, err := xdsclient.New(cfg, xdsclient.Options{Backoff: backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1, MaxDelay: time.Millisecond}})
	xdstest.NoError(t, err)
	t.Cleanup(client.Close)
	return &watchingClient{
		XDSClient: client, of: c, rng: rng, watches: make(map[string]*textWatch),
		delta: slices.Contains(features, "delta"), locators: slices.Contains(features, "dynamic_parameter_constraints"),
	}
}

// act begins and ends some watches.
func (w *watchingClient) act() {
	for range w.rng.IntN(5) {
		of := pick(w.rng, convergingTypes)
		v := &textWatch{of: of, name: pick(w.rng, convergingNames(of)), have: make(map[string]string)}
		if w.locators {
			v.constraints = pick(w.rng, w.of.constraints)
		}
		if w.delta && w.rng.IntN(4) == 0 {
			v.name = globOf(of)
			if w.rng.IntN(2) == 0 {
				v.name = "*"
			}
		}
		if v.name == "*" {
			v.of = convergingTypes[0]
		}
		key := fmt.Sprint(v.of.Name, " ", v.name, " ", v.constraints.Key())
		if old := w.watches[key]; old != nil {
			old.stop()
			delete(w.watches, key)
			continue
		}
		w.watches[key] = v
		if v.isCollection() {
			v.stop = w.WatchCollectionLocator(v.of, v.name, v.constraints, collectionWatch{v})
		} else {
			v.stop = w.WatchLocator(v.of, v.name, v.constraints, resourceWatch{v})
		}
	}
}

// check waits until each watch has what the store has for it.
func (w *watchingClient) check(t *testing.T) {
	t.Helper()
	for key, v := range w.watches {
		want := v.want(w.of.back, w.locators, w.of.constraints[w.of.of.Load()])
		var have map[string]string
		defer func() {
			if t.Failed() {
				t.Errorf("%s with delta %t and locators %t: got %v", key, w.delta, w.locators, have)
			}
		}()
		v.Await(t, fmt.Sprint(key, " to be ", want), func() bool {
			have = maps.Clone(v.have)
			return v.answered && maps.Equal(have, want)
		})
	}
}

// textWatch is a watch of a resource, or of a collection.
type textWatch struct {
	of          *xdsclient.ResourceType
	name        string
	constraints dynparam.Constraints
	stop        func()
	xdstest.State
	// have has the texts of the resource, of an error, or of the members with their parameters; answered says that the server has answered.
	have     map[string]string
	answered bool
}

func (v *textWatch) isCollection() bool { return strings.HasSuffix(v.name, "*") }

// want is what a store has for the watch. A client that does not send constraints has those of its node.
func (v *textWatch) want(s *controlplane.Store, locators bool, node dynparam.Constraints) map[string]string {
	want := map[string]string{}
	c := v.constraints
	if !locators {
		c = node
	}
	add := func(name string) {
		switch r, st := s.Choose(v.of.TypeURL, name, c); {
		case st != nil && !v.isCollection():
			want[name] = st.Message()
		case r != nil:
			want[name] = string(r.Any().GetValue())
		}
	}
	if !v.isCollection() {
		add(v.name)
		return want
	}
	for _, r := range s.Resources(v.of.TypeURL) {
		switch newStyle := strings.HasPrefix(r.Name(), "xdstp:"); {
		case newStyle == (v.name == "*"):
		case !locators:
			add(r.Name())
		case c.Match(r.Parameters()):
			want[r.Name()+r.Parameters().Key()] = string(r.Any().GetValue())
		}
	}
	return want
}

// put notes the text of a resource or of an error.
func (v *textWatch) put(key string, value any, err error, done func()) {
	defer done()
	v.Change(func() {
		delete(v.have, key)
		var failed *xdsclient.Error
		switch text, _ := value.(string); {
		case err == nil:
			v.have[key] = text
		case !errors.As(err, &failed) || v.isCollection():
		default:
			if st, sent := failed.Status(); sent && failed.Kind != xdsclient.KindDoesNotExist {
				v.have[key] = st.Message()
			}
		}
		v.answered = v.answered || !v.isCollection()
	})
}

func (v *textWatch) ResourceChanged(value any, err error, done func()) {
	v.put(v.name, value, err, done)
}

func (v *textWatch) MemberChanged(m xdsclient.Member, value any, err error, done func()) {
	v.put(m.Name+m.Parameters.Key(), value, err, done)
}

func (v *textWatch) CollectionChanged(err error, done func()) {
	defer done()
	v.Change(func() {
		if v.answered = err == nil; err != nil {
			clear(v.have)
		}
	})
}

// resourceWatch and collectionWatch are a textWatch with the method AmbientError of their interfaces. What it reports leaves the last value in use.
type (
	resourceWatch   struct{ *textWatch }
	collectionWatch struct{ *textWatch }
)

func (resourceWatch) AmbientError(_ error, done func())                       { done() }
func (collectionWatch) AmbientError(_ xdsclient.Member, _ error, done func()) { done() }
