// Package outcomes counts what becomes of the RPCs of the process: how many began, how each ended and how
// long it took, by channel, route and cluster. RPCs that fail before they reach an endpoint, or before there
// is a route, count too.
//
// It is off until somebody looks, see [Look]. While it is off an RPC pays one atomic load. While it is on an
// RPC takes no lock and allocates nothing: it adds to the numbers of a [Counter], which only grow. Once a
// second a timer keeps these numbers: readings of the last minute are differences of what it has kept.
//
// It decides nothing and knows neither routes nor endpoints. The interceptors and the router count; package
// livestate reads. Numbers of connections and of requests in flight to endpoints, for the limits of gRFC A32,
// are not kept here: package balancer/internal/traffic has those.
package outcomes

import (
	"cmp"
	"math/bits"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/bounds"
)

// Key identifies what is counted together.
type Key struct {
	Target string // of the channel, as it was dialled
	// Route is the name of the route, or the path that it matches. It is empty for RPCs without a route.
	Route string
	// Cluster is where the route sends the RPC. It is empty if the route answers the RPC itself, or there is none.
	Cluster string
}

// maxRoute is the limit of Key.Route, in bytes.
const maxRoute = 128

// RouteLabel returns the Route of a Key, and of metrics: the name of the route, or else the paths that it matches.
func RouteLabel(name, paths string) string {
	label := cmp.Or(name, paths)
	if len(label) <= maxRoute {
		return label
	}
	return strings.ToValidUTF8(label[:maxRoute], "")
}

// Others stands for the routes and clusters for which there is no room (bounds.OutcomeKinds).
const Others = "(others)"

const (
	// exact is up to how many RPCs in a second the latency of each is taken. Reading the clock is by far the
	// most expensive part of counting, so of further ones the latency of every sample-th is taken, and counts
	// sample times.
	exact  = 128
	sample = 8
	// other is the index of codes that gRPC does not know.
	other = int(codes.Unauthenticated) + 1
)

// ErrPanic is what an RPC has ended with whose interceptor or invoker did not return.
var ErrPanic = status.Error(codes.Internal, "the code that carries out the RPC panicked")

// Counter counts the RPCs of one Key. Its methods are safe for concurrent use.
type Counter struct {
	key Key
	// gone: the Counter is not read any more.
	gone atomic.Bool

	started         atomic.Uint64
	codes           [other + 1]atomic.Uint64 // RPCs that have ended
	retries, hedges atomic.Uint64
	// latency counts RPCs that have ended, and not failed, by the time that they took, modulo 2^32.
	latency [buckets]atomic.Uint32
	last    atomic.Pointer[Failure]
	// base is what started was at the last tick.
	base atomic.Uint64

	history history // guarded by table.mu
}

// Failure is an error that an RPC ended with.
type Failure struct {
	Time time.Time `json:"time"`
	Code string    `json:"code"`
	Text string    `json:"text"`

	tick uint64
}

// RPC is an RPC that is counted. The zero value is one that is not.
type RPC struct {
	counter *Counter
	begin   time.Duration // since base
	weight  uint32        // of its latency; 0: it is not taken
}

// origin is from when durations are taken: time.Since reads one clock, time.Now two.
var origin = time.Now()

// On reports whether anything is counted.
func On() bool { return on.Load() }

// Gone reports whether Find returns another Counter by now.
func (c *Counter) Gone() bool { return c.gone.Load() }

// Begin counts an RPC that begins. End must follow.
func (c *Counter) Begin() RPC {
	n := c.started.Add(1)
	switch {
	case n-c.base.Load() <= exact:
		return RPC{c, time.Since(origin), 1}
	case n%sample == 0:
		return RPC{c, time.Since(origin), sample}
	default:
		return RPC{counter: c}
	}
}

// End counts an RPC that has ended with a status error, or nil.
func (r RPC) End(err error) {
	c := r.counter
	if c == nil {
		return
	}
	code := status.Code(err)
	index := min(uint(code), uint(other))
	// Failures are told by their number: their latency is that of a deadline, or of a refusal.
	if r.weight != 0 && !failing[index] {
		c.latency[bucketOf(time.Since(origin)-r.begin)].Add(r.weight)
	}
	c.codes[index].Add(1)
	if code == codes.OK {
		return
	}
	// One text a second is enough.
	if now, last := ticks.Load(), c.last.Load(); last == nil || last.tick != now {
		c.last.Store(&Failure{time.Now(), CodeName(int(code)), bounds.Text(status.Convert(err).Message(), bounds.ErrorText), now})
	}
}

// Once returns End for an RPC that may be told twice that it has ended.
func (r RPC) Once() func(error) {
	var ended atomic.Bool
	return func(err error) {
		if !ended.Swap(true) {
			r.End(err)
		}
	}
}

// Resent counts the retries or hedges of an RPC.
func (r RPC) Resent(n int, hedges bool) {
	switch {
	case r.counter == nil:
	case hedges:
		r.counter.hedges.Add(uint64(n))
	default:
		r.counter.retries.Add(uint64(n))
	}
}

// Refused counts an RPC of a channel that has no route for it, because there is no configuration for
// example. err is the status that it ends with.
func Refused(target string, err error) {
	if On() {
		Find(Key{Target: target}).Begin().End(err)
	}
}

// codeNames are the codes as gRPC's metrics have them.
var codeNames = [other + 1]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS",
	"UNAUTHENTICATED", "other",
}

// CodeName returns the name of a code, "other" for one that gRPC does not know.
func CodeName(code int) string { return codeNames[min(uint(code), uint(other))] }

// failing are the codes with which an RPC counts as failed: those that say that nobody served it. With the others a
// server has answered the application, that something does not exist for example.
var failing = func() (set [other + 1]bool) {
	for _, code := range []codes.Code{
		codes.Unknown, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss,
	} {
		set[code] = true
	}
	set[other] = true
	return set
}()

// buckets is the number of buckets of latencies. Each power of two nanoseconds from 16 µs on has two, the
// first bucket has what is below and the last one what is above 1.5 minutes.
const (
	buckets  = 48
	smallest = 14 // 2^14 ns are 16 µs
)

func bucketOf(d time.Duration) int {
	n := bits.Len64(uint64(max(d, 0)))
	if n <= smallest {
		return 0
	}
	return min(1+2*(n-1-smallest)+int(d>>(n-2)&1), buckets-1)
}

// lowerBound returns where a bucket begins.
func lowerBound(bucket int) time.Duration {
	if bucket == 0 {
		return 0
	}
	i := bucket - 1
	return time.Duration(2+i%2) << (smallest - 1 + i/2)
}
