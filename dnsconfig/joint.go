package dnsconfig

import (
	"context"
	"sync"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// joint is the resolver of one channel: it joins the addresses of gRPC's "dns" resolver, whose
// resolver.ClientConn it is, with the service config of the TXT records, which it looks up.
type joint struct {
	resolver.ClientConn // the channel's
	target              resolver.Target
	options             Options
	name                string // of the records
	lookup              lookupFunc
	client              Client
	addresses           resolver.Resolver
	asked               chan struct{}      // has room for one request for a look-up, so that none is lost
	cancel              context.CancelFunc // of the look-ups
	running             sync.WaitGroup     // the look-ups

	// Of the goroutine that looks up:
	records []string // of the last look-up that was answered
	last    *Result  // of records
	logged  Outcome

	// mu serializes updates of the channel. It is held while gRPC takes one, during which
	// gRPC does not call back.
	mu         sync.Mutex
	state      *resolver.State            // nil: no addresses yet
	answered   bool                       // the first look-up of the service config has ended
	config     *serviceconfig.ParseResult // of the last choice, nil if there was none
	configText string
}

// start begins to look up addresses, with dns, and records.
func (j *joint) start(dns resolver.Builder, opts resolver.BuildOptions) error {
	var err error
	if j.addresses, err = dns.Build(dnsTarget(j.target), j, opts); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	j.cancel = cancel
	j.running.Go(func() { j.run(ctx) })
	return nil
}

// ResolveNow implements resolver.Resolver.
func (j *joint) ResolveNow(o resolver.ResolveNowOptions) {
	j.addresses.ResolveNow(o)
	j.refresh()
}

// Close implements resolver.Resolver.
func (j *joint) Close() {
	j.cancel()
	j.running.Wait()
	j.addresses.Close()
}

// deliver handles the result of a look-up of the service config.
func (j *joint) deliver(r *Result) {
	if j.options.OnResult != nil {
		j.options.OnResult(r)
	}
	if err := j.configure(r); err != nil {
		// The "dns" resolver retries if the channel rejects its addresses. It does not know
		// of those that it reported before the service config.
		j.addresses.ResolveNow(resolver.ResolveNowOptions{})
	}
}

// configure has the channel use the choice. Without one it keeps what it has, as gRPC does if an update has no service config.
func (j *joint) configure(r *Result) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	news := !j.answered
	j.answered = true
	// The same text has the same value, so that the channel sees no change.
	if c := r.Choice; c != nil && (j.config == nil || j.configText != c.ServiceConfig) {
		j.config, j.configText, news = j.ParseServiceConfig(c.ServiceConfig), c.ServiceConfig, true
	}
	j.log(r)
	if j.state == nil || !news {
		return nil
	}
	return j.push()
}

// push updates the channel.
func (j *joint) push() error {
	s := *j.state
	if j.config != nil {
		s.ServiceConfig = j.config
	}
	return j.ClientConn.UpdateState(s)
}

// UpdateState implements resolver.ClientConn. Addresses wait for the first look-up of the
// service config, so that RPCs do not start without it.
func (j *joint) UpdateState(s resolver.State) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state = &s
	if !j.answered && len(s.Addresses)+len(s.Endpoints) > 0 {
		return nil
	}
	return j.push()
}

// ReportError implements resolver.ClientConn.
func (j *joint) ReportError(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ClientConn.ReportError(err)
}
