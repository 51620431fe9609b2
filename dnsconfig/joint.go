package dnsconfig

import (
	"sync"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

type jointConfig struct {
	cc      resolver.ClientConn
	target  resolver.Target
	opts    resolver.BuildOptions
	dns     resolver.Builder
	lookup  lookupFunc
	name    string
	options Options
}

// joint is the resolver of one channel: it joins the addresses that gRPC's "dns"
// resolver finds with the service config of the TXT records. To that resolver
// it is the resolver.ClientConn.
type joint struct {
	jointConfig
	addresses resolver.Resolver
	texts     *watcher
	goroutine goroutine

	// mu makes the updates of the channel serial. It is held while gRPC takes
	// one, and gRPC calls nothing here from within.
	mu    sync.Mutex
	state *resolver.State // nil: no addresses yet
	// answered: the first look-up of the service config has ended.
	answered bool
	config   *serviceconfig.ParseResult // nil: none
	// What parsed holds is the parsed form of parsedText.
	parsed     *serviceconfig.ParseResult
	parsedText string
	logged     *Result
}

func newJoint(c jointConfig) (resolver.Resolver, error) {
	j := &joint{jointConfig: c}
	var err error
	if j.addresses, err = c.dns.Build(dnsTarget(c.target), clientConn{j}, c.opts); err != nil {
		return nil, err
	}
	j.texts = &watcher{
		name:     c.name,
		lookup:   c.lookup,
		client:   Client{Language: language, Hostname: c.options.Hostname, Draw: drawFor(c.opts)},
		validate: func(text string) error { return c.cc.ParseServiceConfig(text).Err },
		options:  c.options,
		deliver:  j.take,
		asked:    make(chan struct{}, 1),
	}
	j.goroutine = startGoroutine(j.texts.run)
	return j, nil
}

// ResolveNow implements resolver.Resolver.
func (j *joint) ResolveNow(o resolver.ResolveNowOptions) {
	j.addresses.ResolveNow(o)
	j.texts.refresh()
}

// Close implements resolver.Resolver.
func (j *joint) Close() {
	j.goroutine.stop()
	j.addresses.Close()
}

// take takes the result of a look-up of the service config.
func (j *joint) take(r *Result) {
	if j.options.OnResult != nil {
		j.options.OnResult(r)
	}
	if err := j.configure(r); err != nil {
		// The "dns" resolver retries what the channel did not take; it was told
		// nothing yet of what it brought before the service config did.
		j.addresses.ResolveNow(resolver.ResolveNowOptions{})
	}
}

func (j *joint) configure(r *Result) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	before, first := j.config, !j.answered
	j.answered = true
	switch r.Outcome {
	case OutcomeChosen:
		j.config = j.parse(r.Choice.ServiceConfig)
	case OutcomeNoMatch, OutcomeNoRecord:
		j.config = nil
	}
	j.log(r)
	if j.state == nil || (!first && j.config == before) {
		return nil
	}
	return j.push()
}

// parse returns the same result for the same text, by which the channel's
// policies see that nothing has changed.
func (j *joint) parse(text string) *serviceconfig.ParseResult {
	if j.parsed == nil || j.parsedText != text {
		j.parsed, j.parsedText = j.cc.ParseServiceConfig(text), text
	}
	return j.parsed
}

// push hands the channel what is known.
func (j *joint) push() error {
	s := *j.state
	if j.config != nil {
		s.ServiceConfig = j.config
	}
	return j.cc.UpdateState(s)
}

// clientConn is what the "dns" resolver reports addresses to.
type clientConn struct{ *joint }

// UpdateState implements resolver.ClientConn. Addresses wait for the first
// look-up of the service config, as RPCs should not start under another one.
func (c clientConn) UpdateState(s resolver.State) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = &s
	if !c.answered && len(s.Addresses)+len(s.Endpoints) > 0 {
		return nil
	}
	return c.push()
}

// ReportError implements resolver.ClientConn.
func (c clientConn) ReportError(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cc.ReportError(err)
}

// NewAddress implements resolver.ClientConn.
//
// Deprecated: resolvers call UpdateState.
func (c clientConn) NewAddress(addresses []resolver.Address) {
	_ = c.UpdateState(resolver.State{Addresses: addresses})
}

// ParseServiceConfig implements resolver.ClientConn.
func (c clientConn) ParseServiceConfig(text string) *serviceconfig.ParseResult {
	return c.cc.ParseServiceConfig(text)
}
