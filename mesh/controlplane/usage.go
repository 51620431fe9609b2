package controlplane

import (
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/internal/access"
)

// peerUsage is what the streams of one peer hold together, and whose turn it is among them.
type peerUsage struct {
	quotas *quotas
	// queue lets the peer have one turn at a time for work of a size that it chose: see turns.
	queue sync.Mutex
	// large lets one large request of the peer be decoded and carried out at a time. It is locked before queue.
	large sync.Mutex
	// streams counts the users; quotas.mu guards it.
	streams int
}

// enter waits for the turn of a stream among those of the peer, which leave ends. Both do nothing for nil; see turns.peer.
func (p *peerUsage) enter() {
	if p != nil {
		p.queue.Lock()
	}
}

func (p *peerUsage) leave() {
	if p != nil {
		p.queue.Unlock()
	}
}

// payNames has a peer hold distinct names, an ask or a demand that is not shared, in place of the one that did. Each may be
// nil. Store.mu guards by.
func payNames(by **peerUsage, to *peerUsage, weight int64) {
	if *by == to {
		return
	}
	if *by != nil {
		(*by).quotas.of[ofNames].Give(*by, weight)
	}
	if *by = to; to != nil {
		to.quotas.of[ofNames].Add(to, weight)
	}
}

// nameBytes is the length for which a name counts once.
const nameBytes = 256

func nameWeight(name, constraints string) int64 {
	return 1 + int64(len(name)+len(constraints))/nameBytes
}

// streamUsage is what one stream holds, of its own limits and of what its peer may hold, but for names, which asks hold. It is safe
// for concurrent use, but for use.
type streamUsage struct {
	// maxNames is Options.MaxSubscriptions, and names what counts against it. Only the reader uses them.
	maxNames, names int

	peer *peerUsage
	key  string

	mu     sync.Mutex
	closed bool
	held   [kinds]int64
	// refusals are the limits that were reached, of which Options.OnRefused is told when the stream has ended: there may be locks before.
	refusals []string
}

// open returns the usage of a new stream, or RESOURCE_EXHAUSTED.
func (q *quotas) open(p *peer.Peer, maxNames int) (*streamUsage, error) {
	key := access.Peer(p)
	q.mu.Lock()
	of := q.peers[key]
	if of == nil {
		of = &peerUsage{quotas: q}
		q.peers[key] = of
	}
	of.streams++
	q.mu.Unlock()
	u := &streamUsage{maxNames: maxNames, peer: of, key: key}
	if err := u.take(ofStreams, 1); err != nil {
		u.close()
		return nil, err
	}
	return u, nil
}

// close returns all that the stream holds.
func (u *streamUsage) close() {
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		return
	}
	u.closed = true
	for of, n := range u.held {
		u.peer.quotas.of[of].Give(u.peer, n)
	}
	refusals := u.refusals
	u.mu.Unlock()
	q := u.peer.quotas
	for _, limit := range refusals {
		q.onRefused(limit)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if u.peer.streams--; u.peer.streams == 0 {
		delete(q.peers, u.key)
	}
}

// take adds to what the stream holds, or returns RESOURCE_EXHAUSTED.
func (u *streamUsage) take(of kind, n int64) error {
	if n == 0 {
		return nil
	}
	err := u.try(of, n)
	if err == nil || err == errClosed {
		return err
	}
	return u.exceeded(of, err)
}

// try is take for who comes again: a refusal is not counted.
func (u *streamUsage) try(of kind, n int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return errClosed
	}
	if err := u.peer.quotas.of[of].Take(u.peer, n); err != nil {
		return err
	}
	u.held[of] += n
	return nil
}

// give returns a part of what the stream holds.
func (u *streamUsage) give(of kind, n int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed {
		u.peer.quotas.of[of].Give(u.peer, n)
		u.held[of] -= n
	}
}

// atMost returns the size for which something counts that must be possible, whatever its size.
func (u *streamUsage) atMost(of kind, size int64) int64 {
	return min(size, u.peer.quotas.of[of].Limit()/16)
}

// use adds to the types and names that the stream subscribes to, or returns RESOURCE_EXHAUSTED.
func (u *streamUsage) use(more int) error {
	if u.names+more > u.maxNames {
		return u.tooManyNames(u.names + more)
	}
	if more < 0 {
		u.give(ofSubscriptions, int64(-more))
	} else if err := u.take(ofSubscriptions, int64(more)); err != nil {
		return err
	}
	u.names += more
	return nil
}

func (u *streamUsage) tooManyNames(names int) error {
	return u.refused("stream_names", status.Errorf(codes.ResourceExhausted,
		"the stream subscribes to %d types and resources, the server allows %d per stream: subscribe to fewer, or raise the limit at the server (--max-subscriptions, Options.MaxSubscriptions)",
		names, u.maxNames))
}

// exceeded is the refusal of more of a kind than a quota allows.
func (u *streamUsage) exceeded(of kind, err error) error {
	return u.refused(limitsOfAll[of].name, status.Errorf(codes.ResourceExhausted, "the xDS server has %v: use another server, or %s", err, limitsOfAll[of].remedy))
}

// refused notes the refusal for a limit, once.
func (u *streamUsage) refused(limit string, err error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.peer.quotas.onRefused != nil && !slices.Contains(u.refusals, limit) {
		u.refusals = append(u.refusals, limit)
	}
	return err
}
