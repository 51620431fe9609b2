package controlplane

import (
	"cmp"
	"math"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/access"
	"github.com/dynxds/dynxds/internal/bounds"
)

// Limits bound what all clients of a [Server] make it hold together, so that no number of them, and nothing that
// they send, fills the memory. A stream for which a limit is reached ends with RESOURCE_EXHAUSTED, and all others
// are served as before. The defaults are for 10,000 clients in 2 GiB; a negative limit is none.
//
// A peer, that is a verified certificate identity at one host, has at most PeerShare of each limit, and less as the
// limit is approached: with a PeerShare of 0.5 never more than what is left for others.
type Limits struct {
	// Streams is the number of streams at a time. The default is 20,000. The streams of one connection
	// are limited by grpc.MaxConcurrentStreams.
	Streams int
	// Subscriptions is the number of names that streams subscribe to, each counted for each stream. The
	// default is 16,000,000.
	Subscriptions int
	// Names is the number of distinct names, with their constraints, that are subscribed to; a name counts
	// once for each 256 bytes. The default is 1,000,000.
	Names int
	// NodeBytes is the approximate size in memory of the nodes of all clients. The default is 256 MiB. A
	// single node may have 512 KiB on the wire.
	NodeBytes int
	// Versions is the number of versions in initial_resource_versions (delta) that differ from those of
	// the server, and that clients have not been answered yet. Beyond it the server forgets them where that
	// costs only a resource that is sent again. The default is 500,000.
	Versions int
	// ReplyBytes is the size of the responses that clients have not read yet. The default is 512 MiB.
	ReplyBytes int
	// PeerShare is the part of each limit that one peer may have, above 0; with 1 or more there is no
	// share. The default is 0.5. It needs to be larger if all clients have the same address, behind a proxy.
	PeerShare float64
	// OnRefused is called when a limit is reached, with its name, such as "streams", for metrics. It is
	// called without locks by several goroutines at a time, and should be quick.
	OnRefused func(limit string)
}

// kind is a limit of Limits.
type kind int

const (
	ofStreams kind = iota
	ofSubscriptions
	ofNames
	ofNodes
	ofVersions
	ofReplies
	kinds
)

// limitTexts has for each kind its plural for errors, its name for metrics, and how to change it.
var limitTexts = [kinds]struct{ plural, name, way string }{
	ofStreams:       {"xDS streams", "streams", "--max-streams, Limits.Streams"},
	ofSubscriptions: {"subscriptions", "subscriptions", "--max-total-subscriptions, Limits.Subscriptions"},
	ofNames:         {"distinct resource names", "names", "--max-names, Limits.Names"},
	ofNodes:         {"bytes of nodes", "node_bytes", "--max-node-bytes, Limits.NodeBytes"},
	ofVersions:      {"initial resource versions", "versions", "--max-versions, Limits.Versions"},
	ofReplies:       {"bytes of responses that are not read", "reply_bytes", "--max-reply-bytes, Limits.ReplyBytes"},
}

// quotas are the Limits of a server, and what its peers hold of them. It is safe for concurrent use.
type quotas struct {
	of        [kinds]*bounds.Quota
	onRefused func(limit string)

	mu    sync.Mutex
	peers map[string]*account
}

// account is what one peer holds.
type account struct {
	shares [kinds]*bounds.Share
	// queue lets the peer have one turn at a time for work of a size that it chose.
	queue sync.Mutex
	// streams counts the users; quotas.mu guards it.
	streams int
}

func newQuotas(l Limits) *quotas {
	q := &quotas{onRefused: l.OnRefused, peers: map[string]*account{}}
	share := cmp.Or(l.PeerShare, bounds.PeerShare)
	for of, limit := range map[kind]int{
		ofStreams:       cmp.Or(l.Streams, bounds.Streams),
		ofSubscriptions: cmp.Or(l.Subscriptions, bounds.Subscriptions),
		ofNames:         cmp.Or(l.Names, bounds.Names),
		ofNodes:         cmp.Or(l.NodeBytes, bounds.NodeBytes),
		ofVersions:      cmp.Or(l.Versions, bounds.Versions),
		ofReplies:       cmp.Or(l.ReplyBytes, bounds.ReplyBytes),
	} {
		limit = max(limit, 0) // a quota of 0 has no limit
		q.of[of] = bounds.NewFairQuota(limitTexts[of].plural, int64(limit), int64(math.Ceil(float64(limit)*share)))
	}
	return q
}

// open returns the tab of a stream, or RESOURCE_EXHAUSTED.
func (q *quotas) open(p *peer.Peer) (*tab, error) {
	key := access.Peer(p)
	q.mu.Lock()
	a := q.peers[key]
	if a == nil {
		a = new(account)
		for of := range a.shares {
			a.shares[of] = q.of[of].Share()
		}
		q.peers[key] = a
	}
	a.streams++
	q.mu.Unlock()
	t := &tab{quotas: q, account: a, key: key}
	if err := t.take(ofStreams, 1); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// refused counts a refusal, and returns the status for the client.
func (q *quotas) refused(of kind, err error) error {
	if q.onRefused != nil {
		q.onRefused(limitTexts[of].name)
	}
	return status.Errorf(codes.ResourceExhausted, "the xDS server has %v: use another server, or raise the limit there (%s)", err, limitTexts[of].way)
}

// tab is what one stream holds of its peer's account, but for names, which asks hold. It is safe for concurrent
// use. A nil tab is without limits.
type tab struct {
	quotas  *quotas
	account *account
	key     string

	mu     sync.Mutex
	closed bool
	held   [kinds]int64
}

// take adds to what the stream holds, or returns RESOURCE_EXHAUSTED.
func (t *tab) take(of kind, n int64) error {
	if t == nil || n == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return errClosed
	}
	if err := t.account.shares[of].Take(n); err != nil {
		return t.quotas.refused(of, err)
	}
	t.held[of] += n
	return nil
}

// try is take for who comes again: a refusal is not counted.
func (t *tab) try(of kind, n int64) bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.account.shares[of].Take(n) != nil {
		return false
	}
	t.held[of] += n
	return true
}

// give returns a part of what the stream holds.
func (t *tab) give(of kind, n int64) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.account.shares[of].Give(n)
		t.held[of] -= n
	}
}

// queue returns the queue of the peer.
func (t *tab) queue() []sync.Locker {
	if t == nil {
		return nil
	}
	return []sync.Locker{&t.account.queue}
}

// names returns the share that pays for distinct names; nil: there is no limit.
func (t *tab) names() *bounds.Share {
	if t == nil {
		return nil
	}
	return t.account.shares[ofNames]
}

// mayName returns RESOURCE_EXHAUSTED if the peer may not subscribe to another name.
func (t *tab) mayName(weight int64) error {
	if t == nil {
		return nil
	}
	if err := t.names().Check(weight); err != nil {
		return t.quotas.refused(ofNames, err)
	}
	return nil
}

// close returns all that the stream holds.
func (t *tab) close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	t.closed = true
	for of, n := range t.held {
		t.account.shares[of].Give(n)
	}
	t.mu.Unlock()
	q := t.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.account.streams--; t.account.streams == 0 {
		delete(q.peers, t.key)
	}
}

// payer is who pays for something that is counted as one of Limits.Names or more: an ask, or a demand that is
// not shared. Store.mu guards it.
type payer struct{ share *bounds.Share }

// charge makes a peer pay, in place of the one that did.
func (p *payer) charge(to *bounds.Share, weight int64) {
	if p.share == to {
		return
	}
	if p.share != nil {
		p.share.Give(weight)
	}
	if p.share = to; to != nil {
		to.Add(weight)
	}
}

// nameBytes is the length for which a name counts once.
const nameBytes = 256

func nameWeight(name, constraints string) int64 {
	return 1 + int64(len(name)+len(constraints))/nameBytes
}
