package identity

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/peer"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/mesh/internal/access"
)

const (
	// DefaultRate is how many reviews a second there are at most: an API server with its defaults lets a thousand requests of
	// service accounts that take some milliseconds run in a second, many times over.
	DefaultRate = 200
	// ofSource is the part of it that clients may have that access.Peer counts as one.
	ofSource = 4
	// firstDelay and lastDelay are how long a connection waits after its first bad token, and at most. Each further one doubles it.
	firstDelay, lastDelay = time.Second, 30 * time.Second
	// maxPeers bounds the connections, and the sources, that are remembered, for peerFor each.
	maxPeers, peerFor = 10_000, 10 * time.Minute
)

// turns has tokens of clients wait for their reviews: so that neither the API server has more of them than the rate, nor a source
// with many keeps others waiting, nor a connection with bad tokens the others of its source. It is safe for concurrent use.
//
// A connection has one token at a time in its source's queue. So a good new token waits for at most one of each other connection.
type turns struct {
	all *rate.Limiter

	mu                   sync.Mutex
	connections, sources *cache.LRUExpireCache
}

// turn is that of a connection, which one token at a time has.
type turn struct {
	taken chan struct{}
	// next is when the next token may be reviewed, and delay is what the last bad one cost. They are for the token that has the turn.
	next  time.Time
	delay time.Duration
}

func newTurns(perSecond int) *turns {
	return &turns{
		all:         rate.NewLimiter(rate.Limit(perSecond), perSecond),
		connections: cache.NewLRUExpireCache(maxPeers), sources: cache.NewLRUExpireCache(maxPeers),
	}
}

// wait waits until a token of a client may be reviewed, or the context ends. The caller has to end the turn.
func (t *turns) wait(ctx context.Context, from *peer.Peer) (*turn, error) {
	source := access.Peer(from)
	connection := source
	if from != nil && from.Addr != nil {
		connection += " " + from.Addr.String()
	}
	t.mu.Lock()
	own := remembered(t.connections, connection, func() *turn { return &turn{taken: make(chan struct{}, 1)} })
	shared := remembered(t.sources, source, func() *rate.Limiter {
		return rate.NewLimiter(t.all.Limit()/ofSource, max(t.all.Burst()/ofSource, 1))
	})
	t.mu.Unlock()
	select {
	case own.taken <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	err := retries.Wait(ctx, time.Until(own.next)) // as long as the last bad token has it
	if err == nil {
		err = shared.Wait(ctx)
	}
	if err == nil {
		err = t.all.Wait(ctx)
	}
	if err != nil {
		own.end()
		return nil, err
	}
	return own, nil
}

// remembered returns what there is of a key, after it was made if need be.
func remembered[T any](in *cache.LRUExpireCache, key string, make func() T) T {
	if is, known := in.Get(key); known {
		return is.(T)
	}
	made := make()
	in.Add(key, made, peerFor)
	return made
}

// judged notes the verdict on the token that has the turn.
func (t *turn) judged(good bool) {
	if good {
		t.delay, t.next = 0, time.Time{}
		return
	}
	t.delay = min(max(2*t.delay, firstDelay), lastDelay)
	t.next = time.Now().Add(t.delay)
}

// end lets the next token of the connection have the turn.
func (t *turn) end() { <-t.taken }
