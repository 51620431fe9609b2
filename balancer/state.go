package balancer

import (
	"fmt"

	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// State is the balancer's part of one snapshot. It is immutable. Parts that
// did not change from one State to the next are the same pointers, which is
// how the balancer knows that they did not.
type State struct {
	// Version is the snapshot's version, see decision.Decision.
	Version uint64
	// Clusters holds every cluster that the snapshot's routes name.
	Clusters pmap.Map[*ClusterState]
	// Default names the clusters to connect when the application asks for a
	// connection before any RPC did (ClientConn.Connect).
	Default []string
	// Connect has the balancer connect Default without an ExitIdle. It is for
	// the first State of a channel that the application asked to connect: the
	// ExitIdle of that came before there was a balancer, and gRPC dropped it.
	Connect bool
	// Reselect routes the RPC of an older Decision again, by this snapshot.
	// It returns the new cluster's name, or the status error that the RPC
	// ends with. It takes no lock.
	Reselect func(old *decision.Decision) (cluster string, err error)
	// Err, if not nil, is why there is no configuration. Clusters is then
	// empty and RPCs fail with Err (UNAVAILABLE) unless they wait for ready.
	Err error
}

// ClusterState is what is known of one cluster. While Err, Endpoints and
// Underlying are nil the cluster is still being resolved, and its RPCs wait.
type ClusterState struct {
	Cluster   *xdsresource.Cluster
	Endpoints *xdsresource.Endpoints
	// ResolveNow has the addresses of Endpoints looked up again, if they come from
	// DNS. It does not wait and may be called from anywhere. nil: they do not.
	ResolveNow func()
	// Notes words what is to be added to the errors of RPCs that find no endpoint: what
	// is wrong with the resources, although they are in use (gRFC A88). It may be called
	// from anywhere, and return "". nil: there is nothing to add.
	Notes fmt.Stringer
	// Underlying has the clusters under an aggregate one.
	Underlying *Underlying
	// Err is why the cluster cannot be used. It names the resource, the
	// server and the node.
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

// Underlying has the clusters under an aggregate cluster. It is immutable, and shares
// with the one before what did not change.
type Underlying struct {
	// Names are in order of preference (gRFC A37): none of them twice, and none of
	// them an aggregate cluster itself unless it is not yet known to be. It is the
	// same slice as before if they are the same.
	Names []string
	// States has the state of each.
	States pmap.Map[*ClusterState]
}

// Same reports whether u and o are one list with the same states.
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
