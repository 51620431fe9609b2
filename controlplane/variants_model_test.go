package controlplane_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

const variantDir = "xdstp://a/T/d/"

var (
	variantNames = []string{"a", "b", "c", variantDir + "x", variantDir + "y"}
	variantTypes = []string{cds, rds}

	// Some of the best practices are not followed: sets of keys differ.
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

// The property that all else of TP2 is for: whatever happens to variants, to
// subscriptions and to streams, a simple client ends up, for each of its
// subscriptions, with what a look at all variants says.
func TestServer_TP2ClientsConverge(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			s := startServer(t, controlplane.Options{NotFoundErrors: true, MaxResponseSize: 100})
			rng := rand.New(rand.NewPCG(seed, 7))
			var clients []*variantClient
			for i, wire := range []func(testing.TB, *testServer, string) tp2Wire{newTP2SotW, newTP2SotW, newTP2Delta, newTP2Delta} {
				c := &variantClient{server: s, wire: wire, rng: rand.New(rand.NewPCG(seed, uint64(i))), constraints: variantConstraints(t)}
				c.connect(t)
				clients = append(clients, c)
			}
			for round := 0; round < 25 && !t.Failed(); round++ {
				var actors sync.WaitGroup
				for _, c := range clients {
					actors.Go(func() { c.act(t) })
				}
				actors.Go(func() {
					for range rng.IntN(6) {
						s.changeVariants(t, rng)
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

func (s *testServer) changeVariants(t *testing.T, rng *rand.Rand) {
	if _, err := s.store.Update(func(tx *controlplane.Tx) {
		for range rng.IntN(4) + 1 {
			typeURL, name, p, content := pick(rng, variantTypes), pick(rng, variantNames), pick(rng, variantParameters), fmt.Sprint(rng.IntN(5))
			switch rng.IntN(12) {
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
	}); err != nil {
		t.Error(err)
	}
}

// variantClient is a tp2Client that changes its mind and loses its stream.
type variantClient struct {
	*tp2Client
	server      *testServer
	wire        func(testing.TB, *testServer, string) tp2Wire
	rng         *rand.Rand
	constraints []dynparam.Constraints
}

func (c *variantClient) connect(t *testing.T) {
	var asks []ask
	if c.tp2Client != nil {
		for _, h := range c.holdings {
			if h.wanted {
				asks = append(asks, h.ask)
			}
		}
	}
	c.tp2Client = newTP2Client(t, c.server, c.wire(t, c.server, "n"))
	if len(asks) > 0 {
		c.move(asks, nil)
	}
}

// act never lets go of the last subscription to a type: the next one would be the
// first of the type with no locators.
func (c *variantClient) act(t *testing.T) {
	if c.rng.IntN(8) == 0 {
		c.connect(t)
	}
	for range c.rng.IntN(4) {
		var added, removed []ask
		for range c.rng.IntN(3) {
			a := ask{pick(c.rng, variantTypes), pick(c.rng, variantNames), pick(c.rng, c.constraints)}
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
		for _, key := range slices.Sorted(maps.Keys(c.holdings)) {
			h := c.holdings[key]
			if h.wanted && c.rng.IntN(5) == 0 && c.count(h.ask.typeURL) > len(removed)+1 {
				removed = append(removed, h.ask)
			}
		}
		c.move(added, removed)
	}
}

func (c *variantClient) count(typeURL string) int {
	n := 0
	for _, h := range c.holdings {
		if h.ask.typeURL == typeURL && h.wanted {
			n++
		}
	}
	return n
}

// quiesce settles until nothing comes of it: Clusters that end are sent after the
// fence, and an answer may be due to what the client says to a response.
func (c *variantClient) quiesce() {
	for quiet := 0; quiet < 2; quiet++ {
		before := c.responses[cds] + c.responses[rds]
		if c.settle(); c.responses[cds]+c.responses[rds] != before {
			quiet = -1
		}
	}
}

// check compares what the client has with what the store says.
func (c *variantClient) check(t *testing.T) {
	t.Helper()
	c.quiesce()
	for _, h := range c.holdings {
		if !h.wanted {
			continue
		}
		want := c.expected(h.ask)
		got := h.String()
		if strings.HasPrefix(got, "NotFound: the control plane has no resource") || got == nothing {
			got = ""
		}
		if got != want {
			t.Errorf("%T: %q of %s with %v: got %q, want %q", c.tp2Client.wire, h.ask.name, h.ask.typeURL, h.ask.constraints, got, want)
		}
	}
}

func (c *variantClient) expected(a ask) string {
	if !a.isCollection() {
		switch r, st := c.server.store.Choose(a.typeURL, a.name, a.constraints); {
		case st != nil:
			return fmt.Sprintf("%v: %s", st.Code(), st.Message())
		case r != nil:
			return string(r.Any().GetValue())
		default:
			return ""
		}
	}
	members := map[string]string{}
	for _, r := range c.server.store.Resources(a.typeURL) {
		if a.covers(r.Name()) && a.constraints.Match(r.Parameters()) {
			members[r.Name()+" "+r.Parameters().Key()] = r.Name() + "=" + string(r.Any().GetValue())
		}
	}
	var ordered []string
	for _, key := range slices.Sorted(maps.Keys(members)) {
		ordered = append(ordered, members[key])
	}
	return strings.Join(ordered, " ")
}
