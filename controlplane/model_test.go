package controlplane_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
)

// modelClient is as simple as a client can be that follows the protocol. What it
// knows survives its streams.
type modelClient struct {
	t        *testing.T
	ctx      context.Context
	server   *testServer
	rng      *rand.Rand
	protocol modelProtocol
	learned  chan struct{}
	readers  sync.WaitGroup

	mu    sync.Mutex
	types map[string]*modelType
	hang  context.CancelFunc
}

// modelProtocol is what SotW and delta clients do differently. Its methods are
// called under the client's mu.
type modelProtocol interface {
	// connect opens a stream, asks for everything, and returns what reads one
	// response.
	connect(ctx context.Context, c *modelClient) (read func() error)
	// change changes the subscriptions of a type at random.
	change(c *modelClient, typeURL string)
}

// modelType is what a client wants and knows of a type.
type modelType struct {
	wildcard bool
	names    map[string]bool
	state    map[string]modelFact
	// nonce and version are those of the last SotW response.
	nonce, version string
}

// modelFact is a resource, or an error without version.
type modelFact struct{ version, value string }

func newModelClient(ctx context.Context, t *testing.T, s *testServer, seed uint64, protocol func() modelProtocol) *modelClient {
	c := &modelClient{
		t: t, ctx: ctx, server: s, protocol: protocol(),
		rng:     rand.New(rand.NewPCG(seed, 1)),
		learned: make(chan struct{}, 1),
		types:   map[string]*modelType{},
		hang:    func() {},
	}
	for _, typeURL := range modelTypes {
		c.types[typeURL] = &modelType{names: map[string]bool{}, state: map[string]modelFact{}}
	}
	c.reconnect()
	return c
}

func (c *modelClient) reconnect() {
	c.mu.Lock()
	c.hang()
	c.mu.Unlock()
	c.readers.Wait()

	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithCancel(c.ctx)
	c.hang = cancel
	read := c.protocol.connect(ctx, c)
	c.readers.Go(func() {
		for {
			if err := read(); err != nil {
				if ctx.Err() == nil {
					c.t.Errorf("%T: the stream ended with %v", c.protocol, err)
				}
				return
			}
			select {
			case c.learned <- struct{}{}:
			default:
			}
		}
	})
}

// sent reports an error of Send, unless the stream was given up.
func (c *modelClient) sent(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		c.t.Errorf("%T: Send: %v", c.protocol, err)
	}
}

// inGlob says whether a name is a member of a subscribed glob that is ok.
func (mt *modelType) inGlob(name string, ok func(glob string) bool) bool {
	for _, glob := range modelGlobs {
		if mt.names[glob] && isMember(name, glob) && ok(glob) {
			return true
		}
	}
	return false
}

func isMember(name, glob string) bool {
	directory, parameters, _ := strings.Cut(glob, "*")
	leaf, ok := strings.CutPrefix(name, directory)
	if !ok {
		return false
	}
	leaf, ok = strings.CutSuffix(leaf, parameters)
	return ok && !strings.ContainsAny(leaf, "/?")
}

func (mt *modelType) wants(name string) bool {
	return mt.wildcard || mt.names[name] || mt.inGlob(name, func(string) bool { return true })
}

// wantedState leaves out errors of names that only the wildcard covers, from
// when the client wanted them by name: TP3 has none for wildcards, so that
// nothing ends them.
func (mt *modelType) wantedState() map[string]string {
	state := map[string]string{}
	for name, fact := range mt.state {
		isError := fact.version == ""
		if mt.wants(name) && (!isError || mt.names[name] || mt.inGlob(name, func(string) bool { return true })) {
			state[name] = fact.value
		}
	}
	return state
}

// modelSotW sends all names with every request. It forgets nothing that it does
// not want any more: it could want it again before the server has noticed.
type modelSotW struct {
	ctx    context.Context
	stream discoverypb.AggregatedDiscoveryService_StreamAggregatedResourcesClient
}

func newModelSotW() modelProtocol { return &modelSotW{} }

func (p *modelSotW) connect(ctx context.Context, c *modelClient) func() error {
	var err error
	p.ctx = ctx
	if p.stream, err = discoverypb.NewAggregatedDiscoveryServiceClient(c.server.conn).StreamAggregatedResources(ctx); err != nil {
		return func() error { return err }
	}
	for _, typeURL := range modelTypes {
		c.types[typeURL].nonce = ""
		p.ask(c, typeURL)
	}
	stream := p.stream
	return func() error {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.types[resp.GetTypeUrl()].learnState(c.t, resp)
		p.ask(c, resp.GetTypeUrl())
		return nil
	}
}

func (p *modelSotW) change(c *modelClient, typeURL string) {
	mt := c.types[typeURL]
	mt.wildcard = typeURL == cds && c.rng.IntN(3) == 0
	clear(mt.names)
	for _, name := range modelNames {
		if c.rng.IntN(3) == 0 {
			mt.names[name] = true
		}
	}
	p.ask(c, typeURL)
}

func (p *modelSotW) ask(c *modelClient, typeURL string) {
	mt := c.types[typeURL]
	names := append(slices.Collect(maps.Keys(mt.names)), "never") // no names at all would be a wildcard
	if mt.wildcard {
		names = append(names, "*")
	}
	c.sent(p.ctx, p.stream.Send(&discoverypb.DiscoveryRequest{
		TypeUrl: typeURL, ResourceNames: names, VersionInfo: mt.version, ResponseNonce: mt.nonce,
	}))
}

func (mt *modelType) learnState(t *testing.T, resp *discoverypb.DiscoveryResponse) {
	mt.nonce, mt.version = resp.GetNonce(), resp.GetVersionInfo()
	if resp.GetTypeUrl() == cds {
		// Complete: what is not there is gone. Errors are remembered.
		maps.DeleteFunc(mt.state, func(_ string, fact modelFact) bool { return fact.version != "" })
	}
	for _, packed := range resp.GetResources() {
		m, err := packed.UnmarshalNew()
		if err != nil {
			t.Error(err)
			return
		}
		mt.state[m.(interface{ GetName() string }).GetName()] = modelFact{resp.GetVersionInfo(), string(packed.GetValue())}
	}
	mt.learnErrors(t, resp.GetResourceErrors())
}

// learnErrors takes the message of Options.NotFoundErrors for what it says.
func (mt *modelType) learnErrors(t *testing.T, errs []*discoverypb.ResourceError) {
	seen := map[string]bool{}
	for _, e := range errs {
		name, detail := e.GetResourceName().GetName(), e.GetErrorDetail()
		if seen[name] {
			t.Errorf("two errors of %q in a response", name)
		}
		seen[name] = true
		if strings.Contains(detail.GetMessage(), "has no resource") {
			delete(mt.state, name)
		} else {
			mt.state[name] = modelFact{value: errorText(codes.Code(detail.GetCode()), detail.GetMessage())}
		}
	}
}

// modelDelta forgets what it does not want any more.
type modelDelta struct {
	ctx    context.Context
	stream discoverypb.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	// begun are the types of which the stream has a request.
	begun map[string]bool
}

func newModelDelta() modelProtocol { return &modelDelta{} }

func (p *modelDelta) connect(ctx context.Context, c *modelClient) func() error {
	var err error
	p.ctx, p.begun = ctx, map[string]bool{}
	if p.stream, err = discoverypb.NewAggregatedDiscoveryServiceClient(c.server.conn).DeltaAggregatedResources(ctx); err != nil {
		return func() error { return err }
	}
	for typeURL, mt := range c.types {
		// The client cannot say which errors it has. Those of a glob's members
		// may be over by now, so it relies on being told again.
		maps.DeleteFunc(mt.state, func(_ string, fact modelFact) bool { return fact.version == "" })
		subscribe := slices.Collect(maps.Keys(mt.names))
		if mt.wildcard {
			subscribe = append(subscribe, "*")
		}
		if len(subscribe) > 0 {
			p.send(c, typeURL, &deltaRequest{ResourceNamesSubscribe: subscribe})
		}
	}
	stream := p.stream
	return func() error {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.types[resp.GetTypeUrl()].learnDifference(c.t, resp)
		p.send(c, resp.GetTypeUrl(), &deltaRequest{ResponseNonce: resp.GetNonce()})
		return nil
	}
}

// send adds to the first request of a type what the client has.
func (p *modelDelta) send(c *modelClient, typeURL string, req *deltaRequest) {
	req.TypeUrl = typeURL
	if !p.begun[typeURL] {
		p.begun[typeURL] = true
		req.InitialResourceVersions = map[string]string{}
		for name, fact := range c.types[typeURL].state {
			if fact.version != "" {
				req.InitialResourceVersions[name] = fact.version
			}
		}
	}
	c.sent(p.ctx, p.stream.Send(req))
}

func (p *modelDelta) change(c *modelClient, typeURL string) {
	mt := c.types[typeURL]
	choices := slices.Concat(modelNames, modelGlobs, modelGlobs)
	var subscribe, unsubscribe []string
	for range c.rng.IntN(4) + 1 {
		name := pick(c.rng, choices)
		switch {
		case slices.Contains(subscribe, name) || slices.Contains(unsubscribe, name):
		case mt.names[name] && c.rng.IntN(4) > 0:
			delete(mt.names, name)
			unsubscribe = append(unsubscribe, name)
		default:
			mt.names[name] = true
			subscribe = append(subscribe, name)
		}
	}
	if typeURL == cds && c.rng.IntN(4) == 0 {
		mt.wildcard = !mt.wildcard
		if mt.wildcard {
			subscribe = append(subscribe, "*")
		} else {
			unsubscribe = append(unsubscribe, "*")
			// Of a collection in error, the client may have what only the
			// wildcard covered: it asks again to be sure.
			for _, glob := range modelGlobs {
				if mt.names[glob] {
					subscribe = append(subscribe, glob)
				}
			}
		}
	}
	if len(subscribe) == 0 && !p.begun[typeURL] {
		return
	}
	maps.DeleteFunc(mt.state, func(name string, _ modelFact) bool { return !mt.wants(name) })
	p.send(c, typeURL, &deltaRequest{ResourceNamesSubscribe: subscribe, ResourceNamesUnsubscribe: unsubscribe})
}

func (mt *modelType) learnDifference(t *testing.T, resp *deltaResponse) {
	seen := map[string]bool{}
	for _, item := range contentOf(resp) {
		name := strings.TrimLeft(item, "-!")
		if seen[name] {
			t.Errorf("%q is twice in %q", name, contentOf(resp))
		}
		seen[name] = true
	}
	for _, r := range resp.GetResources() {
		mt.state[r.GetName()] = modelFact{r.GetVersion(), string(r.GetResource().GetValue())}
	}
	for _, name := range resp.GetRemovedResources() {
		delete(mt.state, name)
	}
	mt.learnErrors(t, resp.GetResourceErrors())
	// The error of a collection withdraws it, and stands for no resource.
	for _, e := range resp.GetResourceErrors() {
		glob := e.GetResourceName().GetName()
		if slices.Contains(modelGlobs, glob) {
			delete(mt.state, glob)
			maps.DeleteFunc(mt.state, func(name string, fact modelFact) bool {
				return isMember(name, glob) && !mt.names[name] && (!mt.wildcard || fact.version == "")
			})
		}
	}
	// What was on its way when the client lost interest.
	maps.DeleteFunc(mt.state, func(name string, _ modelFact) bool { return !mt.wants(name) })
}
