package relay

import (
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/internal/bounds"
)

// LimitNodes sets the limit of the bytes of the nodes of groups, before there are any.
func (r *Relay) LimitNodes(bytes int64) { r.nodes = bounds.NewQuota("bytes of nodes of groups", bytes) }

// Node is node, for tests.
func (f Fold) Node(client, own *corepb.Node) *corepb.Node { return f.node(client, own) }
