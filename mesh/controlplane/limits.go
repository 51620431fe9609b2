package controlplane

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/internal/access"
)

// kind is something that all clients of a [Server] make it hold together. Its limit bounds that, so that no number of them,
// and nothing that they send, fills the memory. A stream for which a limit is reached ends with RESOURCE_EXHAUSTED, and all
// others are served as before. A peer, that is a verified certificate identity at one host, has a share of each: see
// [bounds.Quota].
type kind int

const (
	ofStreams kind = iota
	// ofSubscriptions are the names that streams subscribe to, each counted for each stream.
	ofSubscriptions
	// ofNames are the distinct names, with their constraints, that are subscribed to; see nameWeight.
	ofNames
	// ofNodes is the approximate size in memory of the nodes.
	ofNodes
	// ofVersions are the versions in initial_resource_versions (delta) that differ from those of the server, and that
	// clients have not been answered yet. Beyond the limit the server forgets them where that costs only a resource that
	// is sent again.
	ofVersions
	// ofReplies is the size of the responses that clients have not read yet.
	ofReplies
	// ofRequests is the size of the requests that have arrived, and are not carried out yet.
	ofRequests
	kinds
)

// limitsOfAll has for each kind its plural for errors, its name for metrics, its limit, and what a client can do that is refused.
// That of streams is the default of Options.MaxStreams.
var limitsOfAll = [kinds]struct {
	plural, name string
	limit        int64
	remedy       string
}{
	ofStreams:       {"xDS streams", "streams", bounds.Streams, "raise the limit there (--max-streams, Options.MaxStreams)"},
	ofSubscriptions: {"subscriptions", "subscriptions", bounds.Subscriptions, "subscribe to fewer resources"},
	ofNames:         {"distinct resource names", "names", bounds.Names, "subscribe to fewer resources"},
	ofNodes:         {"bytes of nodes", "node_bytes", bounds.NodeBytes, "shorten the metadata of the node"},
	ofVersions:      {"initial resource versions", "versions", bounds.Versions, "subscribe without them"},
	ofReplies:       {"bytes of responses that are not read", "reply_bytes", bounds.ReplyBytes, "read them"},
	ofRequests:      {"bytes of requests that are not carried out", "request_bytes", bounds.WaitingRequestBytes, "send fewer large ones at a time"},
}

// quotas are the limits of a server, and what its peers hold of them. It is safe for concurrent use.
type quotas struct {
	of        [kinds]*bounds.Quota
	onRefused func(limit string)

	mu    sync.Mutex
	peers map[string]*account
}

// account is what one peer holds.
type account struct {
	shares [kinds]*bounds.Share
	// queue lets the peer have one turn at a time for work of a size that it chose: see turns.
	queue sync.Mutex
	// large lets one large request of the peer be decoded and carried out at a time. It is locked before queue.
	large sync.Mutex
	// streams counts the users; quotas.mu guards it.
	streams int
}

func newQuotas(maxStreams int, onRefused func(limit string)) *quotas {
	q := &quotas{onRefused: onRefused, peers: map[string]*account{}}
	for of := range kinds {
		q.set(of, limitsOfAll[of].limit)
	}
	q.set(ofStreams, int64(maxStreams))
	return q
}

// set sets a limit, before there are streams.
func (q *quotas) set(of kind, limit int64) {
	q.of[of] = bounds.NewQuota(limitsOfAll[of].plural, limit)
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
		q.onRefused(limitsOfAll[of].name)
	}
	return status.Errorf(codes.ResourceExhausted, "the xDS server has %v: use another server, or %s", err, limitsOfAll[of].remedy)
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

// enter waits for the turn of the stream among those of its peer, which leave ends.
func (t *tab) enter() {
	if t != nil {
		t.account.queue.Lock()
	}
}

func (t *tab) leave() {
	if t != nil {
		t.account.queue.Unlock()
	}
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

// payer is who pays for something that is counted as one of ofNames or more: an ask, or a demand that is
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
