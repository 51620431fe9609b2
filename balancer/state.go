package balancer

import (
	"fmt"

	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// State is the balancer's part of one snapshot. It is immutable. What is unchanged since the
// last State is the same pointer, by which the balancer sees that it is.
type State struct {
	// Version is the snapshot's version, see decision.Decision.
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
	// NoHealthChecks says that the application does not want health checks, whatever the clusters
	// ask for. It is the same in all States of a channel.
	NoHealthChecks bool
	// Live, if not nil, is told which balancer has the State, for diagnostics.
	Live *inspect.Live
	// Err, if not nil, is why there is no configuration. Clusters is then empty, and RPCs fail
	// with Err (UNAVAILABLE) unless they wait for ready.
	Err error
}

// ClusterState is what is known of one cluster. While Err, Endpoints and Underlying are nil the
// cluster is being resolved, and its RPCs wait.
type ClusterState struct {
	Cluster   *xdsresource.Cluster
	Endpoints *xdsresource.Endpoints
	// ResolveNow requests another look-up of the addresses of Endpoints, if they come from DNS;
	// otherwise it is nil. It does not block and may be called from any goroutine.
	ResolveNow func()
	// Notes, if not nil, is added to the errors of RPCs that find no endpoint: what is wrong
	// with resources that are in use nevertheless (gRFC A88). It may be called from any
	// goroutine, and return "".
	Notes fmt.Stringer
	// Underlying has the clusters under an aggregate cluster.
	Underlying *Underlying
	// Err is why the cluster cannot be used. It names the resource, the server and the node.
	Err error
}

// secured reports whether the cluster or one under it asks for security.
func (s *ClusterState) secured() bool {
	if s.Underlying != nil {
		for _, u := range s.Underlying.States.All {
			if u.secured() {
				return true
			}
		}
	}
	return s.Cluster != nil && s.Cluster.Security != nil
}

// Underlying is the clusters under an aggregate cluster. It is immutable, and shares with the
// old one what has not changed.
type Underlying struct {
	// Names are in order of preference (gRFC A37), without duplicates, and without aggregate
	// clusters other than those not yet known to be. Equal lists are the same slice.
	Names []string
	// States has the state of each.
	States pmap.Map[*ClusterState]
}

// Same reports whether u and o are the same list with the same states.
func (u *Underlying) Same(o *Underlying) bool {
	return u == o || u != nil && o != nil && u.sameNames(o) && u.States.Same(o.States)
}

func (u *Underlying) sameNames(o *Underlying) bool {
	return len(u.Names) == len(o.Names) && (len(u.Names) == 0 || &u.Names[0] == &o.Names[0])
}

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
