package controlplane

import (
	"sync"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/internal/quota"
)

// kind is something that all clients of a [Server] make it hold together. Its limit bounds that, so that no number of them,
// and nothing that they send, fills the memory. A stream for which a limit is reached ends with RESOURCE_EXHAUSTED, and all
// others are served as before. A peer, that is a verified certificate identity at one host, has a share of each: see
// [quota.Quota].
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
	// clients have not been answered yet, and names that they left beside a wildcard or a glob; see nameWeight. Beyond the limit the server forgets them where that costs only a resource that
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
	of        [kinds]*quota.Quota[*peerUsage]
	onRefused func(limit string)

	mu    sync.Mutex
	peers map[string]*peerUsage
}

func newQuotas(maxStreams int, onRefused func(limit string)) *quotas {
	q := &quotas{onRefused: onRefused, peers: map[string]*peerUsage{}}
	for of := range kinds {
		q.set(of, limitsOfAll[of].limit)
	}
	q.set(ofStreams, int64(maxStreams))
	return q
}

// set sets a limit, before there are streams.
func (q *quotas) set(of kind, limit int64) {
	q.of[of] = quota.New[*peerUsage](limitsOfAll[of].plural, limit)
}
