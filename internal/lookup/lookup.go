// Package lookup finds the addresses of host names, as the endpoints of clusters
// need them: for as long as somebody watches a name, and once for all watchers of
// the process. A name that is watched costs two goroutines, one of them gRPC's.
//
// The look-ups are those of gRPC's resolver "dns", from gRPC's registry, with its
// limits: it looks a name up again when it is asked to, no more often than every
// 30 seconds (dns.SetMinResolutionInterval), and by itself after a failure. The
// addresses go to the resolver's graph. This package knows nothing of clusters,
// and reads no service config from DNS: package dnsconfig does.
package lookup

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

var logger = grpclog.Component("dynxds")

// Result is what DNS says of a name. It is immutable.
type Result struct {
	// Addresses are those of the last answer that had any, as "ip:port".
	Addresses []string
	// Err is why there is none. nil without Addresses: DNS has not answered yet.
	Err error
}

// Answered reports whether DNS has answered at all.
func (r Result) Answered() bool { return r.Err != nil || r.Addresses != nil }

// errNoAddress is also what becomes of a name that does not exist: gRPC's
// resolver does not tell.
var errNoAddress = errors.New("DNS has no address for it")

// lookups holds the names that somebody watches.
var lookups = struct {
	mu     sync.Mutex
	byName map[string]*lookup
}{byName: make(map[string]*lookup)}

// lookup is the look-up of one name. Its goroutine lives as long as somebody
// watches the name.
type lookup struct {
	name string
	// again has room for one request to look the name up again.
	again chan struct{}
	// over is closed when nobody watches any more.
	over chan struct{}

	// mu is held for no call.
	mu      sync.Mutex
	result  Result
	watches map[*Watch]struct{}
}

// Watch is one interest in a name. Its methods may be called from anywhere and do
// not wait.
type Watch struct {
	lookup  *lookup // nil if the name is an address
	changed func(Result)
	refresh time.Duration

	mu    sync.Mutex
	timer *time.Timer // nil if there is no refresh, or the Watch is stopped
}

// minRefresh is the shortest interval of requests. gRPC's resolver has a longer
// one of its own, unless the program has changed that.
const minRefresh = time.Second

// Start has a name, "host:port", looked up until Stop. It returns what is known
// already. changed is called, from one goroutine and with no lock held, when the
// addresses are others, in whatever order, or there are none for another reason;
// it may be called once more while Stop runs. If refresh is above 0, the name is
// looked up that often even if nobody asks.
func Start(name string, refresh time.Duration, changed func(Result)) (*Watch, Result) {
	w := &Watch{changed: changed, refresh: max(refresh, minRefresh)}
	if host, _, err := net.SplitHostPort(name); err == nil {
		if _, err := netip.ParseAddr(host); err == nil {
			return w, Result{Addresses: []string{name}}
		}
	}
	lookups.mu.Lock()
	defer lookups.mu.Unlock()
	l := lookups.byName[name]
	if l == nil {
		l = &lookup{name: name, again: make(chan struct{}, 1), over: make(chan struct{}), watches: make(map[*Watch]struct{})}
		lookups.byName[name] = l
		go l.run()
	}
	w.lookup = l
	if refresh > 0 {
		w.mu.Lock()
		w.timer = time.AfterFunc(w.refresh, w.refreshed)
		w.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watches[w] = struct{}{}
	return w, l.result
}

// ResolveNow has the name looked up again, soon.
func (w *Watch) ResolveNow() {
	if w.lookup == nil {
		return
	}
	select {
	case w.lookup.again <- struct{}{}:
	default:
	}
}

func (w *Watch) refreshed() {
	w.ResolveNow()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Reset(w.refresh)
	}
}

// Stop ends the Watch, and the look-up if nobody else watches the name.
func (w *Watch) Stop() {
	w.mu.Lock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	w.mu.Unlock()
	if w.lookup == nil {
		return
	}
	lookups.mu.Lock()
	defer lookups.mu.Unlock()
	if w.lookup.leave(w) {
		delete(lookups.byName, w.lookup.name)
		close(w.lookup.over)
	}
}

// leave reports whether w was the last one.
func (l *lookup) leave(w *Watch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, watched := l.watches[w]
	delete(l.watches, w)
	return watched && len(l.watches) == 0
}

// run owns gRPC's resolver. Nobody else calls that: it may call back from within
// Build, and its Close waits for such a call to return.
func (l *lookup) run() {
	target := resolver.Target{URL: url.URL{Scheme: "dns", Path: "/" + l.name}}
	r, err := resolver.Get("dns").Build(target, clientConn{l}, resolver.BuildOptions{DisableServiceConfig: true})
	if err != nil {
		l.answer(nil, err)
		<-l.over
		return
	}
	defer r.Close()
	for {
		select {
		case <-l.again:
			r.ResolveNow(resolver.ResolveNowOptions{})
		case <-l.over:
			return
		}
	}
}

// answer takes an answer of DNS. Addresses stay in use until there are others:
// where they lead nowhere any more, connections fail and say so, but where DNS is
// at fault they are all that is left.
func (l *lookup) answer(addresses []string, err error) {
	if err == nil && len(addresses) == 0 {
		err = errNoAddress
	}
	l.mu.Lock()
	before := l.result
	now := Result{Addresses: addresses, Err: err}
	switch {
	case err != nil && before.Addresses != nil:
		l.mu.Unlock()
		logger.Warningf("the addresses of %q stay in use: %v", l.name, err)
		return
	case before.same(now):
		l.mu.Unlock()
		return
	}
	l.result = now
	watches := make([]*Watch, 0, len(l.watches))
	for w := range l.watches {
		watches = append(watches, w)
	}
	l.mu.Unlock()
	for _, w := range watches {
		w.changed(now)
	}
}

// same reports whether r and o are the same but for the order of addresses,
// which DNS changes from one answer to the next.
func (r Result) same(o Result) bool {
	if r.Err != nil && o.Err != nil {
		return r.Err.Error() == o.Err.Error()
	}
	a, b := slices.Clone(r.Addresses), slices.Clone(o.Addresses)
	slices.Sort(a)
	slices.Sort(b)
	return r.Answered() && (r.Err == nil) == (o.Err == nil) && slices.Equal(a, b)
}

// clientConn is what gRPC's resolver reports to.
type clientConn struct{ l *lookup }

// UpdateState implements resolver.ClientConn. An error has the resolver try
// again by itself.
func (c clientConn) UpdateState(s resolver.State) error {
	var addresses []string
	for _, e := range s.Endpoints {
		for _, a := range e.Addresses {
			addresses = append(addresses, a.Addr)
		}
	}
	if len(s.Endpoints) == 0 {
		for _, a := range s.Addresses {
			addresses = append(addresses, a.Addr)
		}
	}
	c.l.answer(addresses, nil)
	if len(addresses) == 0 {
		return balancer.ErrBadResolverState
	}
	return nil
}

// ReportError implements resolver.ClientConn.
func (c clientConn) ReportError(err error) { c.l.answer(nil, err) }

// NewAddress implements resolver.ClientConn.
//
// Deprecated: resolvers call UpdateState.
func (c clientConn) NewAddress(addresses []resolver.Address) {
	_ = c.UpdateState(resolver.State{Addresses: addresses})
}

// ParseServiceConfig implements resolver.ClientConn. There is none to parse.
func (c clientConn) ParseServiceConfig(string) *serviceconfig.ParseResult {
	return &serviceconfig.ParseResult{Err: fmt.Errorf("the look-up of %q takes no service config", c.l.name)}
}
