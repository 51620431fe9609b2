package locality

import (
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// States returns the connectivity of each locality that has a usable endpoint. A policy across
// localities has one state, of the zero ID. It is for diagnostics.
func (p *Policy) States() map[xdsresource.LocalityID]connectivity.State {
	states := make(map[xdsresource.LocalityID]connectivity.State, len(p.members))
	for _, m := range p.members {
		states[m.id] = m.leaf.State().ConnectivityState
	}
	return states
}

// Failure returns why a locality cannot serve, if that is no error of a connection: for example,
// its policy is unknown. nil: there is no such reason.
func (p *Policy) Failure() error {
	for _, m := range p.members {
		if err := tree.Failure(m.leaf.State()); err != nil {
			return err
		}
	}
	return tree.Failure(p.state)
}
