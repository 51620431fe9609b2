package relay

import (
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// LimitNodes sets the limit of the bytes of the nodes of groups without clients, before there are any.
func (r *Relay) LimitNodes(bytes int64) { r.maxIdleNodes = bytes }

// NodeFor is the node that a client is upstream of a relay with a node of its own.
func NodeFor(client, own *corepb.Node) *corepb.Node {
	opts := Options{Bootstrap: &bootstrap.Config{Node: own}}
	return opts.nodeFor(client)
}
