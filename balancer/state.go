package balancer

import (
	"sync/atomic"

	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/pmap"
)

// State is the balancer's part of one snapshot. It is immutable. What is unchanged since the
// last State is the same pointer, by which the balancer sees that it is.
type State struct {
	// Version is the snapshot's version, see decision.Decision. It is not 0.
	Version uint64
	// Clusters has every cluster that the snapshot's routes name.
	Clusters pmap.Map[*ClusterState]
	// Default names the clusters that ClientConn.Connect connects.
	Default []string
	// Connect connects Default without an ExitIdle. It is set in the first State of a channel
	// for which the application has called Connect: gRPC drops an ExitIdle that comes before
	// there is a balancer.
	Connect bool
	// Reselect routes the RPC of an older Decision again, by this snapshot. It returns the name
	// of the new cluster, or the status error that the RPC ends with. It takes no lock.
	Reselect func(old *decision.Decision) (cluster string, err error)
	// Err, if not nil, is why there is no configuration. Clusters is then empty, and RPCs fail
	// with Err (UNAVAILABLE) unless they wait for ready.
	Err error

	// The following is the same in all States of a channel.

	// NoHealthChecks says that the application does not want health checks, whatever the clusters
	// ask for.
	NoHealthChecks bool
	// Subscribe adds n, which may be negative, to the number of plugins that name a cluster. The States that follow have the cluster while
	// that is not 0; an unknown one is in Clusters with an Err. It may be called while a State is applied.
	Subscribe func(cluster string, n int)
	// Live, if not nil, is where diagnostics find the balancer that has the State.
	Live *atomic.Pointer[inspect.Balancer]
}

// ClusterState is what is known of one cluster.
type ClusterState = cluster.Config

// Underlying is the clusters under an aggregate cluster.
type Underlying = cluster.Underlying

type stateKey struct{}

// SetState returns s with the balancer's state attached.
func SetState(s grpcresolver.State, state *State) grpcresolver.State {
	s.Attributes = s.Attributes.WithValue(stateKey{}, state)
	return s
}

// stateFrom returns the state that SetState attached, or nil.
func stateFrom(s grpcresolver.State) *State {
	state, _ := s.Attributes.Value(stateKey{}).(*State)
	return state
}
