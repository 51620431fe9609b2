// Package lookup finds the addresses of host names, as the endpoints of clusters
// need them: for as long as somebody watches a name, and once for all watchers of
// the process.
//
// The look-ups are those of gRPC's resolver "dns", from gRPC's registry: each one
// builds a resolver, takes its first answer, and closes it. So a name that is watched
// costs no goroutine between its look-ups, and there are at most MaxLookups of them
// at a time. When a name is looked up again is decided as gRPC does: when somebody
// asks, but no sooner after a look-up than the minimum says; and after a failure with
// growing intervals. The addresses go to the resolver's graph. This package knows
// nothing of clusters, and reads no service config from DNS: package dnsconfig does.
package lookup

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/grpclog"

	"github.com/dynxds/dynxds/internal/refpool"
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

// lookups has the names that somebody watches.
var lookups refpool.Pool[string, *lookup]

// lookup is one name.
type lookup struct {
	name string
	// over is closed when nobody watches any more.
	over chan struct{}

	// mu is held for no call.
	mu      sync.Mutex
	result  Result
	watches map[*Watch]struct{}
	schedule
}

// Watch is one interest in a name. Its methods may be called from anywhere and do
// not wait.
type Watch struct {
	lookup  *lookup // nil if the name is an address
	release func()
	changed func(Result)
	limits  Limits
}

// Limits say how often a name is looked up.
type Limits struct {
	// Least is the least time from one look-up to the next (gRPC's
	// dns.SetMinResolutionInterval).
	Least time.Duration
	// Refresh is how often the name is looked up even if nobody asks, in any case no
	// more often than each second and than Least says. 0: only if somebody asks.
	Refresh time.Duration
}

// minRefresh is the shortest interval of look-ups that nobody asks for.
const minRefresh = time.Second

// Start has a name, "host:port", looked up until Stop. It returns what is known
// already. changed is called, one call at a time and with no lock held, when the
// addresses are others, in whatever order, or there are none for another reason;
// it may be called once more while Stop runs. Of several limits for one name, the
// shortest times count.
func Start(name string, limits Limits, changed func(Result)) (*Watch, Result) {
	if limits.Refresh > 0 {
		limits.Refresh = max(limits.Refresh, minRefresh)
	}
	w := &Watch{changed: changed, limits: limits}
	if host, _, err := net.SplitHostPort(name); err == nil {
		if _, err := netip.ParseAddr(host); err == nil {
			return w, Result{Addresses: []string{name}}
		}
	}
	l, release, _ := lookups.Acquire(name, func() (*lookup, func(), error) {
		l := &lookup{name: name, over: make(chan struct{}), watches: make(map[*Watch]struct{})}
		return l, l.end, nil
	})
	w.lookup, w.release = l, release
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watches[w] = struct{}{}
	l.limitLocked()
	if l.phase == fresh {
		l.enqueueLocked()
	} else {
		l.planLocked()
	}
	return w, l.result
}

// Watched reports whether somebody watches the name. It is for tests.
func Watched(name string) bool { return lookups.Has(name) }

// ResolveNow has the name looked up again, as soon as the limits permit it.
func (w *Watch) ResolveNow() {
	if w.lookup != nil {
		w.lookup.ask()
	}
}

// Stop ends the Watch, and the look-ups if nobody else watches the name.
func (w *Watch) Stop() {
	if w.lookup == nil {
		return
	}
	w.lookup.remove(w)
	w.release()
}

func (l *lookup) remove(w *Watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, watched := l.watches[w]; !watched {
		return
	}
	delete(l.watches, w)
	if len(l.watches) > 0 { // else it ends, or somebody is about to watch it
		l.limitLocked()
		l.planLocked()
	}
}

// end ends the look-ups of a name that nobody watches.
func (l *lookup) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked()
	close(l.over)
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
