package dnsconfig

import (
	"context"
	"sync"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// joint is the resolver of one channel: it joins the addresses of gRPC's "dns" resolver, whose
// resolver.ClientConn it is, with the service config of the TXT records.
type joint struct {
	cc        resolver.ClientConn
	target    resolver.Target
	options   Options
	addresses resolver.Resolver
	texts     *watcher
	cancel    context.CancelFunc // of texts
	running   sync.WaitGroup     // texts

	// mu serializes updates of the channel. It is held while gRPC takes one, during which
	// gRPC does not call back.
	mu         sync.Mutex
	state      *resolver.State            // nil: no addresses yet
	answered   bool                       // the first look-up of the service config has ended
	config     *serviceconfig.ParseResult // nil: none
	parsed     *serviceconfig.ParseResult // of parsedText
	parsedText string
	logged     *Result
}

// start begins to look up addresses, with dns, and the records of a host.
func (j *joint) start(dns resolver.Builder, lookup lookupFunc, host string, opts resolver.BuildOptions) error {
	var err error
	if j.addresses, err = dns.Build(dnsTarget(j.target), clientConn{j}, opts); err != nil {
		return err
	}
	j.texts = &watcher{
		name:     Prefix + host,
		lookup:   lookup,
		client:   Client{Language: language, Hostname: j.options.Hostname, Draw: drawFor(opts)},
		validate: func(text string) error { return j.cc.ParseServiceConfig(text).Err },
		options:  j.options,
		deliver:  j.onResult,
		asked:    make(chan struct{}, 1),
	}
	ctx, cancel := context.WithCancel(context.Background())
	j.cancel = cancel
	j.running.Go(func() { j.texts.run(ctx) })
	return nil
}

// ResolveNow implements resolver.Resolver.
func (j *joint) ResolveNow(o resolver.ResolveNowOptions) {
	j.addresses.ResolveNow(o)
	j.texts.refresh()
}

// Close implements resolver.Resolver.
func (j *joint) Close() {
	j.cancel()
	j.running.Wait()
	j.addresses.Close()
}

// onResult handles the result of a look-up of the service config.
func (j *joint) onResult(r *Result) {
	if j.options.OnResult != nil {
		j.options.OnResult(r)
	}
	if err := j.configure(r); err != nil {
		// The "dns" resolver retries if the channel rejects its addresses. It does not know
		// of those that it reported before the service config.
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

// parse returns the same result for the same text, so that the channel sees no change.
func (j *joint) parse(text string) *serviceconfig.ParseResult {
	if j.parsed == nil || j.parsedText != text {
		j.parsed, j.parsedText = j.cc.ParseServiceConfig(text), text
	}
	return j.parsed
}

// push updates the channel.
func (j *joint) push() error {
	s := *j.state
	if j.config != nil {
		s.ServiceConfig = j.config
	}
	return j.cc.UpdateState(s)
}

// clientConn is the resolver.ClientConn of the "dns" resolver.
type clientConn struct{ *joint }

// UpdateState implements resolver.ClientConn. Addresses wait for the first look-up of the
// service config, so that RPCs do not start without it.
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
