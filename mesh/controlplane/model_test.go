package controlplane_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// variantDir has resources with variants. plainNames and plainGlobs have none of it.
const variantDir = "xdstp://a/T/d/"

var (
	// modelTypes are a type with a wildcard and one without.
	modelTypes   = []string{cds, rds}
	variantNames = []string{"a", "b", "c", variantDir + "x", variantDir + "y"}
	plainNames   = func() (names []string) {
		for i := range 6 {
			names = append(names, fmt.Sprintf("n%d", i))
		}
		for _, dir := range []string{"d", "d/e"} {
			for i := range 3 {
				names = append(names, fmt.Sprintf("xdstp://auth/T/%s/x%d", dir, i), fmt.Sprintf("xdstp://auth/T/%s/x%d?a=1", dir, i))
			}
		}
		return names
	}()
	plainGlobs = []string{"xdstp://auth/T/d/*", "xdstp://auth/T/d/*?a=1", "xdstp://auth/T/d/e/*"}
	modelNames = slices.Concat(variantNames, plainNames)

	// Some violate the best practices: sets of keys differ.
	variantParameters = []map[string]string{
		nil, parameters("env", "prod"), parameters("env", "test"),
		parameters("shard", "0"), parameters("shard", "1"), parameters("shard", "2"), parameters("shard", "no number"),
		parameters("env", "prod", "shard", "2"), parameters("env", "test", "shard", "2"),
	}
)

func variantConstraints(t *testing.T) []dynparam.Constraints {
	return []dynparam.Constraints{
		{}, exactly(t, "env", "prod"), exactly(t, "env", "test"), exactly(t, "shard", "1"),
		inRange(t, "shard", dynparam.AtMost(1)), inRange(t, "shard", dynparam.AtLeast(1)),
		constraints(t, dynparam.Exclude("env", dynparam.Value("prod"))),
		constraints(t, dynparam.Require("env", dynparam.Value("prod")), dynparam.Require("shard", dynparam.InRanges(dynparam.AtMost(3)))),
	}
}

// The property behind all others: after any changes of resources, variants, errors,
// subscriptions and streams, in any order, simple clients over SotW and delta, by names and by
// locators, have exactly what the store has for them.
func TestServer_EveryClientConverges(t *testing.T) {
	t.Parallel()
	everyClientConverges(t, func(opts controlplane.Options) *testServer { return startServer(t, opts) })
}

// The same, with clients that are served on demand by a source that answers from the store.
func TestOnDemand_EveryClientConverges(t *testing.T) {
	t.Parallel()
	everyClientConverges(t, func(opts controlplane.Options) *testServer {
		m := &mirror{t: t, front: controlplane.NewStore(), live: map[*controlplane.Demand]struct{}{}}
		m.front.OnDemand("", m.demand)
		opts.StoreFor = func(context.Context, *corepb.Node) (*controlplane.Store, error) { return m.front, nil }
		s := startServer(t, opts)
		s.mirror, m.back = m, s.store
		return s
	})
}

func apply(tx *controlplane.Tx, changes []func(*controlplane.Tx)) {
	for _, change := range changes {
		change(tx)
	}
}

func everyClientConverges(t *testing.T, start func(controlplane.Options) *testServer) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			implicit := newImplicit(t)
			s := start(controlplane.Options{NotFoundErrors: true, WrapResources: true, MaxResponseSize: 200, NodeConstraints: implicit.of})
			rng, nodes := rand.New(rand.NewPCG(seed, 7)), rand.New(rand.NewPCG(seed, 8))
			var clients []modelClient
			for i := range uint64(2) {
				for j, wire := range []func(testing.TB, *testServer, string) tp2Wire{newTP2SotW, newTP2Delta} {
					c := &variantClient{connection: newConnection(s, seed, 2*i+uint64(j)), wire: wire, constraints: variantConstraints(t)}
					c.connect(t)
					clients = append(clients, c)
					p := &plainClient{connection: newConnection(s, seed+100, 2*i+uint64(j)), delta: j == 1, facts: facts{cds: {}, rds: {}}, implicit: implicit}
					p.connect(t)
					clients = append(clients, p)
				}
			}
			for round := 0; round < 25 && !t.Failed(); round++ {
				var actors sync.WaitGroup
				for _, c := range clients {
					actors.Go(func() { c.act(t) })
				}
				actors.Go(func() {
					for range rng.IntN(8) {
						s.changeModel(t, rng)
					}
				})
				actors.Go(func() {
					for range nodes.IntN(3) {
						implicit.now.Store(int64(nodes.IntN(len(implicit.all))))
						s.control.RefreshNodeConstraints(nil)
					}
				})
				actors.Wait()
				for _, c := range clients {
					c.check(t)
				}
			}
		})
	}
}

// implicit are the constraints of clients that send none. They change all the time.
type implicit struct {
	all []dynparam.ByType
	now atomic.Int64
}

func newImplicit(t *testing.T) *implicit {
	i := &implicit{all: []dynparam.ByType{{}}}
	for _, c := range variantConstraints(t)[1:4] {
		byType, err := dynparam.NewByType(map[string]dynparam.Constraints{"*": c})
		xdstest.NoError(t, err)
		i.all = append(i.all, byType)
	}
	return i
}

func (i *implicit) of(*corepb.Node) dynparam.ByType { return i.all[i.now.Load()] }

func (s *testServer) changeModel(t *testing.T, rng *rand.Rand) {
	var changes []func(*controlplane.Tx)
	for range rng.IntN(4) + 1 {
		changes = append(changes, randomChange(rng))
	}
	var err error
	if s.mirror != nil {
		err = s.mirror.update(changes)
	} else {
		_, err = s.store.Update(func(tx *controlplane.Tx) { apply(tx, changes) })
	}
	if err != nil {
		t.Error(err)
	}
}

func randomChange(rng *rand.Rand) func(*controlplane.Tx) {
	typeURL, content := pick(rng, modelTypes), fmt.Sprint(rng.IntN(5))
	failure := status.New(pick(rng, []codes.Code{codes.NotFound, codes.Internal}), content)
	if rng.IntN(2) == 0 {
		name, glob, kind := pick(rng, plainNames), pick(rng, plainGlobs), rng.IntN(8)
		return func(tx *controlplane.Tx) {
			switch kind {
			case 0, 1:
				tx.Delete(cds, name)
				tx.Delete(rds, name)
			case 2:
				tx.SetError(typeURL, name, failure)
			case 3:
				tx.SetError(typeURL, glob, failure)
			case 4:
				tx.Delete(typeURL, glob)
			default:
				tx.SetNamed(name, nil, variant(cds, content))
				tx.SetNamed(name, nil, variant(rds, content))
			}
		}
	}
	name, p, kind := pick(rng, variantNames), pick(rng, variantParameters), rng.IntN(12)
	return func(tx *controlplane.Tx) {
		switch kind {
		case 0:
			tx.Delete(typeURL, name)
		case 1:
			tx.SetError(typeURL, name, status.New(codes.Internal, content))
		case 2:
			tx.SetVariantError(typeURL, name, p, status.New(codes.PermissionDenied, content))
		case 3, 4, 5:
			tx.DeleteVariant(typeURL, name, p)
		default:
			tx.SetNamed(name, p, variant(typeURL, content))
		}
	}
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

func isMember(name, glob string) bool {
	directory, parameters, _ := strings.Cut(glob, "*")
	leaf, ok := strings.CutPrefix(name, directory)
	if !ok {
		return false
	}
	leaf, ok = strings.CutSuffix(leaf, parameters)
	return ok && !strings.ContainsAny(leaf, "/?")
}

// modelClient is a client that changes its subscriptions and loses its streams at random.
type modelClient interface {
	act(t *testing.T)
	// check waits for all responses and compares the client's state with the store's.
	check(t *testing.T)
}

// connection is the part of a modelClient that survives its streams.
type connection struct {
	*tp2Client
	server *testServer
	rng    *rand.Rand
}

func newConnection(s *testServer, seed, stream uint64) connection {
	return connection{server: s, rng: rand.New(rand.NewPCG(seed, stream))}
}

// open replaces the stream, and subscribes again.
func (c *connection) open(t *testing.T, wire tp2Wire) {
	var asks []ask
	if c.tp2Client != nil {
		for _, h := range c.subscribed() {
			asks = append(asks, h.ask)
		}
	}
	c.tp2Client = newTP2Client(t, c.server, wire)
	if len(asks) > 0 {
		c.move(asks, nil)
	}
}

// change is move for requests in any order. What is on its way for a subscription that has ended would
// look like what a new wildcard covers, so that is taken in first.
func (c *connection) change(added, removed []ask) {
	if slices.ContainsFunc(added, func(a ask) bool { return a.name == "*" }) {
		c.fence()
	}
	c.move(added, removed)
}

// subscribed returns the present subscriptions in order.
func (c *connection) subscribed() []*holding {
	var wanted []*holding
	for _, key := range slices.Sorted(maps.Keys(c.holdings)) {
		if c.holdings[key].wanted {
			wanted = append(wanted, c.holdings[key])
		}
	}
	return wanted
}

// quiesce settles until there are no more responses: removals of Clusters are sent after the
// fence, and the client's answers may cause further responses.
func (c *connection) quiesce() {
	for quiet := 0; quiet < 2; quiet++ {
		before := c.responses[cds] + c.responses[rds]
		if c.settle(); c.responses[cds]+c.responses[rds] != before {
			quiet = -1
		}
	}
}

// variantClient subscribes by locators.
type variantClient struct {
	connection
	wire        func(testing.TB, *testServer, string) tp2Wire
	constraints []dynparam.Constraints
}

func (c *variantClient) connect(t *testing.T) { c.open(t, c.wire(t, c.server, "n")) }

// act keeps the last subscription to a type: otherwise the next one would be the first request
// of the type without locators.
func (c *variantClient) act(t *testing.T) {
	if c.rng.IntN(8) == 0 {
		c.connect(t)
	}
	for range c.rng.IntN(4) {
		var added, removed []ask
		for range c.rng.IntN(3) {
			a := ask{pick(c.rng, modelTypes), pick(c.rng, variantNames), pick(c.rng, c.constraints)}
			switch c.rng.IntN(5) {
			case 0:
				if isDelta(c.tp2Client) {
					a.name = variantDir + "*"
				}
			case 1:
				a.typeURL, a.name = cds, "*"
			}
			if h := c.holdings[a.key()]; (h == nil || !h.wanted) && !slices.ContainsFunc(added, func(b ask) bool { return a.key() == b.key() }) {
				added = append(added, a)
			}
		}
		for _, h := range c.subscribed() {
			rest := len(slices.DeleteFunc(c.subscribed(), func(other *holding) bool { return other.ask.typeURL != h.ask.typeURL }))
			if c.rng.IntN(5) == 0 && rest > len(removed)+1 {
				removed = append(removed, h.ask)
			}
		}
		c.change(added, removed)
	}
}

func (c *variantClient) check(t *testing.T) {
	t.Helper()
	c.quiesce()
	for _, h := range c.subscribed() {
		got := h.String()
		if strings.HasPrefix(got, "NotFound: the control plane has no resource") || got == nothing {
			got = ""
		}
		if h.ask.name == "*" { // the client takes all that it has for other subscriptions, too
			got = strings.Join(slices.DeleteFunc(strings.Fields(got), func(member string) bool {
				name, _, _ := strings.Cut(member, "=")
				return !c.server.inWildcard(name) && c.hasOther(h.ask.typeURL, name)
			}), " ")
		}
		if want := c.expected(h.ask); got != want {
			t.Errorf("%T: %q of %s with %v: got %q, want %q", c.tp2Client.wire, h.ask.name, h.ask.typeURL, h.ask.constraints, got, want)
		}
	}
}

func (c *variantClient) expected(a ask) string {
	if !a.isCollection() {
		return chosen(c.server.store.Choose(a.typeURL, a.name, a.constraints))
	}
	members := map[string]string{}
	for _, r := range c.server.store.Resources(a.typeURL) {
		if a.covers(r.Name()) && (a.name != "*" || c.server.inWildcard(r.Name())) && a.constraints.Match(r.Parameters()) {
			members[r.Name()+" "+r.Parameters().Key()] = r.Name() + "=" + string(r.Any().GetValue())
		}
	}
	var ordered []string
	for _, key := range slices.Sorted(maps.Keys(members)) {
		ordered = append(ordered, members[key])
	}
	return strings.Join(ordered, " ")
}

// chosen is the text of a resource or an error, "" for neither.
func chosen(r *controlplane.Resource, st *status.Status) string {
	switch {
	case st != nil:
		return fmt.Sprintf("%v: %s", st.Code(), st.Message())
	case r != nil:
		return string(r.Any().GetValue())
	default:
		return ""
	}
}

// plainClient subscribes by names. Its facts survive its streams.
type plainClient struct {
	connection
	delta    bool
	facts    facts
	implicit *implicit
}

// facts are the resources and errors that a plainClient knows, by type and name.
type facts map[string]map[string]fact

// fact is a resource, or an error without a version.
type fact struct{ version, text string }

func (c *plainClient) connect(t *testing.T) {
	if !c.delta {
		w := newTP2SotW(t, c.server, "n").(*tp2SotW)
		w.facts = c.facts
		c.open(t, w)
		return
	}
	for _, known := range c.facts {
		// The client cannot say which errors it has, and those of a glob's members may have
		// ended: it relies on being sent them again.
		maps.DeleteFunc(known, func(_ string, f fact) bool { return f.version == "" })
	}
	w := newTP2Delta(t, c.server, "n").(*tp2Delta)
	w.facts = c.facts
	c.open(t, w)
}

func (c *plainClient) act(t *testing.T) {
	if c.rng.IntN(6) == 0 {
		c.connect(t)
	}
	if c.rng.IntN(3) == 0 {
		c.fence() // takes in responses while others act
	}
	for range c.rng.IntN(6) {
		typeURL, pool := pick(c.rng, modelTypes), modelNames
		if c.delta {
			pool = slices.Concat(modelNames, plainGlobs, plainGlobs)
		}
		var added, removed []ask
		change := func(name string, end bool) { // a delta client may subscribe again
			a := ask{typeURL: typeURL, name: name}
			switch same := func(b ask) bool { return a.key() == b.key() }; {
			case slices.ContainsFunc(added, same) || slices.ContainsFunc(removed, same):
			case end && c.subscribes(typeURL, name):
				removed = append(removed, a)
			default:
				added = append(added, a)
			}
		}
		for range c.rng.IntN(4) + 1 {
			change(pick(c.rng, pool), c.rng.IntN(4) > 0)
		}
		if typeURL == cds && c.rng.IntN(4) == 0 {
			change("*", true)
			for _, glob := range plainGlobs {
				// Of a collection in error, the client may have what only the wildcard
				// covered: it subscribes again to be sure.
				if c.subscribes(cds, glob) {
					change(glob, false)
				}
			}
		}
		c.change(added, removed)
	}
}

func (c *plainClient) check(t *testing.T) {
	t.Helper()
	c.quiesce()
	for _, typeURL := range modelTypes {
		want, got := map[string]string{}, map[string]string{}
		for name, f := range c.facts[typeURL] {
			// An error of a name that only the wildcard covers is from an earlier
			// subscription: TP3 has none for wildcards, so nothing ends it.
			inGlob := c.inGlob(typeURL, name, func(string) bool { return true })
			if c.subscribes(typeURL, name) || inGlob || c.subscribes(typeURL, "*") && f.version != "" {
				got[name] = f.text
			}
		}
		for _, name := range modelNames {
			r, st := c.server.store.Choose(typeURL, name, c.implicit.of(nil).For(typeURL))
			inGlob := c.inGlob(typeURL, name, func(glob string) bool { return c.server.store.Error(typeURL, glob) == nil })
			if (r != nil || st != nil) && (c.subscribes(typeURL, name) || inGlob || c.subscribes(typeURL, "*") && c.server.inWildcard(name) && r != nil) {
				want[name] = chosen(r, st)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%T by names, %s (-store +client):\n%s", c.tp2Client.wire, typeURL, diff)
		}
	}
}

// subscribes reports whether a client subscribes to a name itself, without constraints.
func (c *tp2Client) subscribes(typeURL, name string) bool {
	h := c.holdings[ask{typeURL: typeURL, name: name}.key()]
	return h != nil && h.wanted
}

// inGlob reports whether a name is a member of a subscribed glob that is ok.
func (c *tp2Client) inGlob(typeURL, name string, ok func(glob string) bool) bool {
	return slices.ContainsFunc(append(slices.Clone(plainGlobs), variantDir+"*"), func(glob string) bool {
		return c.subscribes(typeURL, glob) && isMember(name, glob) && ok(glob)
	})
}

// learn adds the content of a response. full is set if it has all resources of the type.
func (f facts) learn(c *tp2Client, typeURL string, resources []*discoverypb.Resource, removed []string, errs []*discoverypb.ResourceError, full bool) {
	known := f[typeURL]
	if full {
		maps.DeleteFunc(known, func(_ string, f fact) bool { return f.version != "" })
	}
	seen := map[string]bool{}
	once := func(name string) string {
		if seen[name] {
			c.t.Errorf("%q is twice in a response", name)
		}
		seen[name] = true
		return name
	}
	for _, r := range resources {
		known[once(r.GetName())] = fact{r.GetVersion(), string(r.GetResource().GetValue())}
	}
	for _, name := range removed {
		delete(known, once(name))
	}
	for _, e := range errs {
		name, detail := once(e.GetResourceName().GetName()), e.GetErrorDetail()
		switch {
		case strings.Contains(name, "*"):
			// The error of a collection withdraws its members.
			maps.DeleteFunc(known, func(member string, f fact) bool {
				return isMember(member, name) && !c.subscribes(typeURL, member) && (!c.subscribes(typeURL, "*") || f.version == "")
			})
		case strings.Contains(detail.GetMessage(), "has no resource"): // Options.NotFoundErrors
			delete(known, name)
		default:
			known[name] = fact{text: fmt.Sprintf("%v: %s", codes.Code(detail.GetCode()), detail.GetMessage())}
		}
	}
}

// forgetUnwanted is for delta clients, which drop what they unsubscribe from. SotW clients keep
// it: they could subscribe again before the server has noticed.
func (f facts) forgetUnwanted(c *tp2Client, typeURL string) {
	maps.DeleteFunc(f[typeURL], func(name string, _ fact) bool {
		return !c.subscribes(typeURL, name) && !c.subscribes(typeURL, "*") && !c.inGlob(typeURL, name, func(string) bool { return true })
	})
}
