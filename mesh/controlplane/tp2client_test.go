package controlplane_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// ask is a subscription, by its locator.
type ask struct {
	typeURL, name string
	constraints   dynparam.Constraints
}

func (a ask) key() string { return a.typeURL + " " + a.name + " " + a.constraints.Key() }

func (a ask) message() *discoverypb.ResourceLocator {
	return &discoverypb.ResourceLocator{Name: a.name, DynamicParameterConstraints: a.constraints.ToProto()}
}

// isCollection reports whether the subscription is to a glob or the wildcard.
func (a ask) isCollection() bool { return strings.Contains(a.name, "*") }

// covers reports whether a name is in the collection.
func (a ask) covers(name string) bool {
	return a.name == "*" || a.isCollection() && isMember(name, a.name)
}

// holding is a subscription and what the client has for it: the text of a resource, an error or
// nothing, and for collections each variant of each member.
type holding struct {
	ask ask
	// wanted is false after the end of a SotW subscription: the client could subscribe again
	// before the server has noticed, and then is not sent it again.
	wanted  bool
	has     string
	members map[string]string
}

// nothing is the text of a subscription without a resource; "" means that nothing was sent yet.
const nothing = "nothing"

// tp2Client is a simple client that subscribes by locators and applies responses as TP2 says.
type tp2Client struct {
	t        testing.TB
	holdings map[string]*holding
	wire     tp2Wire
	fences   int
	store    *controlplane.Store
	// responses counts responses by type.
	responses map[string]int
}

// tp2Wire is the difference between SotW and delta.
type tp2Wire interface {
	// change subscribes and unsubscribes; the client's holdings are changed already.
	change(c *tp2Client, added, removed []ask)
	// request subscribes by names and locators: to these (SotW), or to these too (delta).
	request(typeURL string, names []string, locators ...*discoverypb.ResourceLocator)
	receive() tp2Reply
	// take receives one response for the client's holdings, and returns its type.
	take(c *tp2Client) (typeURL string)
	end() error
}

// tp2Reply is a response of either protocol. A resource that is not wrapped (SotW) has no name.
type tp2Reply struct {
	typeURL   string
	resources []*discoverypb.Resource
	errors    []*discoverypb.ResourceError
}

// eachVariant runs a parallel test over SotW and delta, each with a server of its own.
func eachVariant(t *testing.T, opts controlplane.Options, test func(t *testing.T, s *testServer, open func(node string) *tp2Client)) {
	t.Parallel()
	for name, wire := range map[string]func(testing.TB, *testServer, string) tp2Wire{"SotW": newTP2SotW, "delta": newTP2Delta} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, opts)
			test(t, s, func(node string) *tp2Client { return newTP2Client(t, s, wire(t, s, node)) })
		})
	}
}

func newTP2Client(t testing.TB, s *testServer, wire tp2Wire) *tp2Client {
	return &tp2Client{t: t, holdings: map[string]*holding{}, wire: wire, store: s.store, responses: map[string]int{}}
}

// subscribe returns the new holding.
func (c *tp2Client) subscribe(typeURL, name string, constraints dynparam.Constraints) *holding {
	return c.move([]ask{{typeURL, name, constraints}}, nil)[0]
}

func (c *tp2Client) unsubscribe(h *holding) { c.move(nil, []ask{h.ask}) }

func (c *tp2Client) move(added, removed []ask) []*holding {
	var holdings []*holding
	for _, a := range removed {
		c.holdings[a.key()].wanted = false
		if isDelta(c) {
			delete(c.holdings, a.key())
		}
	}
	for _, a := range added {
		h := c.holdings[a.key()]
		if h == nil {
			h = &holding{ask: a, members: map[string]string{}}
			c.holdings[a.key()] = h
		}
		h.wanted = true
		holdings = append(holdings, h)
	}
	c.wire.change(c, added, removed)
	return holdings
}

// settle takes all responses that are due. It fences twice: removals are sent at the end of a push,
// which may contain the first fence.
func (c *tp2Client) settle() {
	c.t.Helper()
	c.fence()
	c.fence()
}

// fence subscribes to a resource of a type that is pushed after all others, and takes the responses
// before it.
func (c *tp2Client) fence() {
	c.t.Helper()
	c.fences++
	name := fmt.Sprintf("fence-%p-%d", c, c.fences)
	if _, err := c.store.Update(func(tx *controlplane.Tx) { tx.SetNamed(name, nil, wrapperspb.String(name)) }); err != nil {
		c.t.Fatal(err)
	}
	c.wire.request(custom, []string{name})
	for {
		typeURL := c.wire.take(c)
		if typeURL == custom {
			return
		}
		c.responses[typeURL]++
	}
}

// wants settles and compares a holding.
func (c *tp2Client) wants(h *holding, want string) {
	c.t.Helper()
	c.settle()
	if got := h.String(); got != want {
		c.t.Errorf("%q with %v: got %q, want %q", h.ask.name, h.ask.constraints, got, want)
	}
}

// String has, for a collection, the members in order.
func (h *holding) String() string {
	if !h.ask.isCollection() || h.has != "" {
		return h.has
	}
	var members []string
	for _, key := range slices.Sorted(maps.Keys(h.members)) {
		members = append(members, h.members[key])
	}
	return strings.Join(members, " ")
}

// learn applies a response. full is set if it has all resources of the type.
func (c *tp2Client) learn(typeURL string, resources []*discoverypb.Resource, errs []*discoverypb.ResourceError, full bool) {
	c.t.Helper()
	seen := map[string]bool{}
	for _, r := range resources {
		key := r.GetName() + fmt.Sprint(r.GetDynamicParameters())
		if seen[key] {
			c.t.Errorf("%q with %v is twice in a response", r.GetName(), r.GetDynamicParameters())
		}
		seen[key] = true
	}
	for _, h := range c.holdings {
		switch {
		case h.ask.typeURL != typeURL:
		case h.ask.isCollection():
			h.learnMembers(c.t, resources, full)
		default:
			h.learnChoice(c.t, resources, full)
		}
	}
	for _, e := range errs {
		for _, h := range c.named(typeURL, e.GetResourceName()) {
			h.has = fmt.Sprintf("%v: %s", codes.Code(e.GetErrorDetail().GetCode()), e.GetErrorDetail().GetMessage())
			clear(h.members)
		}
		c.dropMember(typeURL, e.GetResourceName())
	}
}

// learnChoice applies the preferred one of the variants that match.
func (h *holding) learnChoice(t testing.TB, resources []*discoverypb.Resource, full bool) {
	var names []*discoverypb.Resource
	var parameters []dynparam.Parameters
	for _, r := range resources {
		if r.GetName() == h.ask.name {
			names, parameters = append(names, r), append(parameters, parametersOf(t, r))
		}
	}
	choice := h.ask.constraints.Choose(parameters)
	switch {
	case choice.Index >= 0:
		h.has = text(t, names[choice.Index])
	case full && !strings.Contains(h.has, ": "):
		h.has = nothing
	}
}

func (h *holding) learnMembers(t testing.TB, resources []*discoverypb.Resource, full bool) {
	if full {
		clear(h.members)
	}
	for _, r := range resources {
		p := parametersOf(t, r)
		if h.ask.covers(r.GetName()) && h.ask.constraints.Match(p) {
			h.has = ""
			h.members[r.GetName()+" "+p.Key()] = r.GetName() + "=" + text(t, r)
		}
	}
}

// forget applies the removals of a delta response.
func (c *tp2Client) forget(typeURL string, names []string, lost []*discoverypb.ResourceName) {
	c.t.Helper()
	for _, h := range c.holdings {
		for _, name := range names {
			switch {
			case h.ask.typeURL != typeURL:
			case h.ask.name == name:
				h.has = nothing
				clear(h.members)
			case h.ask.covers(name):
				maps.DeleteFunc(h.members, func(key, _ string) bool { return strings.HasPrefix(key, name+" ") })
			}
		}
	}
	for _, name := range lost {
		for _, h := range c.named(typeURL, name) {
			h.has = nothing
			clear(h.members)
		}
		c.dropMember(typeURL, name)
	}
}

// dropMember drops a variant of a member from the collections, if the name has exact constraints.
func (c *tp2Client) dropMember(typeURL string, name *discoverypb.ResourceName) {
	c.t.Helper()
	values := map[string]string{}
	for key, k := range name.GetDynamicParameterConstraints().GetKeyConstraints() {
		if len(k.GetConstraints()) != 1 || k.GetInvert() || k.GetConstraints()[0].GetIntegerRangeList() != nil {
			return
		}
		values[key] = k.GetConstraints()[0].GetValue()
	}
	p, err := dynparam.NewParameters(values)
	if err != nil {
		c.t.Error(err)
	}
	for _, h := range c.holdings {
		if h.ask.typeURL == typeURL && h.ask.covers(name.GetName()) {
			delete(h.members, name.GetName()+" "+p.Key())
		}
	}
}

// named returns the subscriptions of a ResourceName: one or, without constraints, all of the name.
func (c *tp2Client) named(typeURL string, name *discoverypb.ResourceName) []*holding {
	if m := name.GetDynamicParameterConstraints(); m != nil {
		constraints, err := dynparam.FromProto(m)
		if err != nil {
			return nil
		}
		if h := c.holdings[ask{typeURL, name.GetName(), constraints}.key()]; h != nil {
			return []*holding{h}
		}
		return nil
	}
	var all []*holding
	for _, h := range c.holdings {
		if h.ask.typeURL == typeURL && h.ask.name == name.GetName() {
			all = append(all, h)
		}
	}
	return all
}

func parametersOf(t testing.TB, r *discoverypb.Resource) dynparam.Parameters {
	t.Helper()
	p, err := dynparam.NewParameters(r.GetDynamicParameters())
	xdstest.NoError(t, err)
	return p
}

// text is the content of a resource; see variant.
func text(t testing.TB, r *discoverypb.Resource) string {
	t.Helper()
	return string(r.GetResource().GetValue())
}

// variant is a resource whose content is text.
func variant(typeURL, text string) *anypb.Any {
	return &anypb.Any{TypeUrl: typeURL, Value: []byte(text)}
}

func tp2Node(id string) *corepb.Node {
	return &corepb.Node{Id: id, ClientFeatures: []string{"xds.config.resource-in-sotw"}}
}

func constraints(t testing.TB, keys ...dynparam.KeyConstraints) dynparam.Constraints {
	t.Helper()
	c, err := dynparam.New(keys...)
	xdstest.NoError(t, err)
	return c
}

// exactly is for pairs of keys and values.
func exactly(t testing.TB, pairs ...string) dynparam.Constraints {
	t.Helper()
	c, err := dynparam.Exact(parameters(pairs...))
	xdstest.NoError(t, err)
	return c
}

func inRange(t testing.TB, key string, ranges ...dynparam.Range) dynparam.Constraints {
	t.Helper()
	return constraints(t, dynparam.Require(key, dynparam.InRanges(ranges...)))
}

// parameters is for pairs of keys and values.
func parameters(pairs ...string) map[string]string {
	p := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		p[pairs[i]] = pairs[i+1]
	}
	return p
}

// setVariant stores a variant whose text is content.
func (s *testServer) setVariant(t testing.TB, typeURL, name, content string, pairs ...string) {
	t.Helper()
	s.update(t, func(tx *controlplane.Tx) {
		tx.SetNamed(name, parameters(pairs...), variant(typeURL, content))
	})
}
