package folder

import (
	"github.com/dynxds/dynxds/internal/document"
	"github.com/dynxds/dynxds/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// readDenial reads a denial:
//
//	kind: Denial
//	clients: {kind: MeshService, name: batch}
//	to: {kind: MeshService, name: payments}
//	reason: batch jobs have no business with payments
func readDenial(doc document.Value) *meshroute.Denial {
	o := doc.Object("kind", "clients", "to", "reason")
	return &meshroute.Denial{
		Source:  source(doc),
		Clients: meshpolicy.ReadTargetRef(o.Require("clients")),
		To:      meshpolicy.ReadDestination(o.Require("to")),
		Reason:  o.Field("reason").Text(),
	}
}
