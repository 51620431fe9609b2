// Package lookup resolves host names to addresses for the endpoints of clusters, once per
// name in the process, while the name is watched.
//
// Each look-up builds gRPC's resolver "dns", from gRPC's registry, takes its first answer
// and closes it, so that a name costs no goroutine between its look-ups. At most bounds.Lookups
// run at a time, and groups of names get them by turns: names that DNS does not answer delay
// those of their own group. As in gRPC, a name is looked up again on demand, but not before the minimum
// interval is over, and after a failure with growing intervals. The addresses go to the
// resolver's graph. This package does not know clusters, nor does it read a service config
// from DNS, as package dnsconfig does.
package lookup

import (
	"container/list"
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/dynxds/dynxds/internal/boundlog"
)

var logger = boundlog.Component("dynxds")

// Result is the state of a name. It is immutable.
type Result struct {
	// Addresses are those of the last answer that had any, as "ip:port".
	Addresses []string
	// Err is the reason for the lack of addresses; nil if there are some, or DNS has not answered yet. Beside Addresses it says
	// that they are gone: DNS has answered since that the name does not exist or has no address. Failures
	// of DNS do not count: see absent.
	Err error
}

// Latest returns r without addresses that are gone.
func (r Result) Latest() Result {
	if r.Err != nil {
		r.Addresses = nil
	}
	return r
}

// Answered reports whether DNS has answered at all.
func (r Result) Answered() bool { return r.Err != nil || r.Addresses != nil }

// errNoAddress also stands for a name that does not exist, which gRPC's resolver does not
// distinguish.
var errNoAddress = errors.New("DNS has no address for it")

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
	schedule
}

// Watch is a watch of a name. Its methods do not block and are safe for concurrent use, from
// callbacks too.
type Watch struct {
	lookup  *lookup // nil if the name is an address
	changed func(Result)
	group   any
	limits  Limits
	place   *list.Element // in the queue of its group, nil if the name does not wait
}

// Limits bound how often a name is looked up.
type Limits struct {
	// Least is the minimum interval of look-ups (gRPC's dns.SetMinResolutionInterval).
	Least time.Duration
	// Refresh is the interval of look-ups without demand, at least Least and one second.
	// 0: only on demand.
	Refresh time.Duration
}

// minRefresh is the minimum of Limits.Refresh.
const minRefresh = time.Second

// Start looks up a name, "host:port", until Stop, and returns the addresses that are known already. changed
// is called when the set of addresses or the error changes, one call at a time and with no
// lock held, maybe once more while Stop runs. The shortest limits of all watches of a name
// apply. group is any value that can be compared: groups get look-ups by turns, and a name
// in several groups has the turns of all.
func Start(name string, group any, limits Limits, changed func(Result)) (*Watch, Result) {
	if limits.Refresh > 0 {
		limits.Refresh = max(limits.Refresh, minRefresh)
	}
	w := &Watch{changed: changed, group: group, limits: limits}
	if host, _, err := net.SplitHostPort(name); err == nil {
		if _, err := netip.ParseAddr(host); err == nil {
			return w, Result{Addresses: []string{name}}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	l := lookups[name]
	if l == nil {
		l = &lookup{name: name, watches: make(map[*Watch]struct{}), schedule: schedule{asked: true}}
		l.ctx, l.stop = context.WithCancel(context.Background())
		lookups[name] = l
	}
	w.lookup = l
	l.watches[w] = struct{}{}
	if l.phase == queued {
		w.enqueue()
		startLookups()
	}
	l.plan()
	return w, l.result.Latest()
}

// Watched reports whether the name is watched, for tests.
func Watched(name string) bool {
	mu.Lock()
	defer mu.Unlock()
	return lookups[name] != nil
}

// ResolveNow looks up the name again, as soon as the limits permit it.
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
	if _, watched := l.watches[w]; !watched {
		return
	}
	delete(l.watches, w)
	w.dequeue()
	if len(l.watches) > 0 {
		l.plan() // by other limits
		return
	}
	delete(lookups, l.name)
	l.phase = ended
	l.stopTimer()
	l.stop()
}

// answer handles an answer of DNS. After a failure the old addresses stay in use: if they
// are outdated, connections fail with an error; if DNS is at fault, there is nothing better.
func (l *lookup) answer(addresses []string, err error) {
	if err != nil && l.current().Addresses != nil {
		logger.Warningf("%q keeps its addresses: %v", l.name, err)
		return
	}
	l.set(Result{addresses, err})
}

// emptied handles an answer without an address: if DNS means it, the addresses are gone.
func (l *lookup) emptied() {
	if last := l.current(); last.Addresses != nil && last.Err == nil && absent(l.ctx, l.name) {
		logger.Warningf("%q has no address any more", l.name)
		l.set(Result{last.Addresses, errNoAddress})
	}
}

func (l *lookup) current() Result {
	mu.Lock()
	defer mu.Unlock()
	return l.result
}

// set makes now the result, and tells the watches if it differs.
func (l *lookup) set(now Result) {
	for _, w := range l.replace(now) {
		w.changed(now)
	}
}

// replace makes now the result, and returns the watches if it differs.
func (l *lookup) replace(now Result) []*Watch {
	mu.Lock()
	defer mu.Unlock()
	if l.result.same(now) {
		return nil
	}
	l.result = now
	return slices.Collect(maps.Keys(l.watches))
}

// same reports whether r and o are equal but for the order of the addresses, which DNS
// rotates.
func (r Result) same(o Result) bool {
	if (r.Err == nil) != (o.Err == nil) || r.Err != nil && r.Err.Error() != o.Err.Error() {
		return false
	}
	a, b := slices.Clone(r.Addresses), slices.Clone(o.Addresses)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
