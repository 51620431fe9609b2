// Package lookup resolves host names to addresses for the endpoints of clusters, once per
// name in the process, while the name is watched.
//
// Each look-up builds gRPC's resolver "dns", from gRPC's registry, takes its first answer
// and closes it, so that a name costs no goroutine between its look-ups. At most bounds.Lookups
// run at a time, and clusters get them by turns: names that DNS does not answer delay
// those of their own cluster. As in gRPC, a name is looked up again on demand, but not before the minimum
// interval is over, and after a failure with growing intervals. The addresses go to the
// resolver's graph. This package does not know what clusters are, nor does it read a service config
// from DNS, as package dnsconfig does.
package lookup

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/backoff"

	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/retries"
)

var logger = boundlog.Component("dynxds")

// Result is what DNS has said of a name: nothing yet, addresses as "ip:port", or why there are none. It is immutable.
type Result struct {
	Addresses []string
	Err       error
}

// Answered reports whether DNS has answered at all.
func (r Result) Answered() bool { return r.Err != nil || r.Addresses != nil }

// same reports whether r and o are equal but for the order of the addresses, which DNS
// rotates.
func (r Result) same(o Result) bool {
	sorted := func(addresses []string) []string { return slices.Sorted(slices.Values(addresses)) }
	return fmt.Sprint(r.Err) == fmt.Sprint(o.Err) && slices.Equal(sorted(r.Addresses), sorted(o.Addresses))
}

// mu guards everything in this package that changes. It is not held for calls of a watcher, or of a resolver.
var mu sync.Mutex

// lookups has the names that are watched. Guarded by mu.
var lookups = make(map[string]*lookup)

// lookup is one name.
type lookup struct {
	name    string
	ctx     context.Context // ends with the last watch
	stop    context.CancelFunc
	result  Result
	watches map[*Watch]struct{}

	asked    bool      // there is demand for a look-up
	earliest time.Time // when that may begin
	waits    bool      // for a turn
	running  bool      // it has one
	failures int       // since the last look-up that found addresses
}

// Watch is a watch of a name. Its methods do not block and are safe for concurrent use, from
// callbacks too.
type Watch struct {
	lookup  *lookup // nil if the name is an address
	cluster string
	changed func(Result)
}

// Start looks up a name, "host:port", until Stop, and returns what DNS has said already. changed
// is called when the set of addresses or the error changes, one call at a time and with no
// lock held, maybe once more while Stop runs. Clusters get look-ups by turns, and a name in
// several clusters has the turns of all.
func Start(name, cluster string, changed func(Result)) (*Watch, Result) {
	w := &Watch{cluster: cluster, changed: changed}
	if host, _, err := net.SplitHostPort(name); err == nil {
		if _, err := netip.ParseAddr(host); err == nil {
			return w, Result{Addresses: []string{name}}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	l := lookups[name]
	if l == nil {
		l = &lookup{name: name, watches: make(map[*Watch]struct{}), asked: true}
		l.ctx, l.stop = context.WithCancel(context.Background())
		lookups[name] = l
	}
	w.lookup = l
	l.watches[w] = struct{}{}
	switch {
	case len(l.watches) == 1:
		l.plan()
	case l.waits:
		l.enqueue(cluster)
		startLookups()
	}
	return w, l.result
}

// Watched reports whether the name is watched, for tests.
func Watched(name string) bool {
	mu.Lock()
	defer mu.Unlock()
	return lookups[name] != nil
}

// ResolveNow looks up the name again, as soon as the minimum interval permits it.
func (w *Watch) ResolveNow() {
	if w.lookup == nil {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	if !w.lookup.asked {
		w.lookup.asked = true
		w.lookup.plan()
	}
}

// Stop ends the Watch, and the look-ups with the last Watch of the name.
func (w *Watch) Stop() {
	l := w.lookup
	if l == nil {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	delete(l.watches, w)
	if len(l.watches) == 0 && lookups[l.name] == l {
		delete(lookups, l.name)
		l.waits = false
		l.stop()
	}
}

// plan has the name wait for a turn, or for the time when it may do that, if there is demand.
func (l *lookup) plan() {
	if !l.asked || l.running || len(l.watches) == 0 {
		return
	}
	if wait := time.Until(l.earliest); wait > 0 {
		time.AfterFunc(wait, l.due)
		return
	}
	for w := range l.watches {
		l.enqueue(w.cluster)
	}
	startLookups()
}

func (l *lookup) due() {
	mu.Lock()
	defer mu.Unlock()
	l.plan()
}

// finish ends a look-up. ok: it has found addresses.
func (l *lookup) finish(ok bool) {
	l.running = false
	l.failures++
	pause := retries.After(l.failures, backoff.DefaultConfig) // as gRPC's resolver "dns" does
	if ok {
		l.failures, pause = 0, grpcbridge.MinResolutionInterval()
	}
	l.asked = l.asked || !ok
	l.earliest = time.Now().Add(pause)
	l.plan()
}

// answer handles an answer of DNS. After a failure the old addresses stay in use: if they
// are outdated, connections fail with an error; if DNS fails, there is nothing better.
func (l *lookup) answer(now Result) {
	if now.Err != nil && l.known() {
		logger.Warningf("%q keeps its addresses: %v", l.name, now.Err)
		return
	}
	l.set(now)
}

// known reports whether the name has addresses.
func (l *lookup) known() bool {
	mu.Lock()
	defer mu.Unlock()
	return l.result.Addresses != nil
}

// set makes now the result, and tells the watches if it differs.
func (l *lookup) set(now Result) {
	var watches []*Watch
	mu.Lock()
	if !l.result.same(now) {
		l.result, watches = now, slices.Collect(maps.Keys(l.watches))
	}
	mu.Unlock()
	for _, w := range watches {
		w.changed(now)
	}
}
