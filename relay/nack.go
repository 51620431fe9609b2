package relay

import (
	"github.com/dynxds/dynxds/controlplane"
)

// rejected is the controlplane's Options.OnNACK: it counts what a client rejects.
func (r *Relay) rejected(n controlplane.Rejection) {
	r.log.Warn("a client rejects a response", "node", n.Node.GetId(), "stream", n.Stream, "type", n.TypeURL, "version", n.NACK.Version, "error", n.NACK.Err.Message())
}
