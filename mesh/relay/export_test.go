package relay

import corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

// Node is node, for tests.
func (f Fold) Node(client, own *corepb.Node) *corepb.Node { return f.node(client, own) }
