package cluster

import (
	"fmt"
	"slices"

	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Config is what is known of one cluster. It is immutable. While Err, Endpoints and Underlying
// are nil the cluster is being resolved, and its RPCs wait.
type Config struct {
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
	// RPCs fail with its text and Notes.
	Err error
}

// known reports whether the endpoints of the cluster are known, and nothing is wrong.
func (c *Config) known() bool { return c.Err == nil && c.Cluster != nil && c.Endpoints != nil }

// Usable reports whether an endpoint of the cluster may get RPCs, as far as is known: not whether it can
// be reached.
func (c *Config) Usable() bool {
	switch {
	case c.Err != nil:
		return false
	case c.Underlying != nil && len(c.Underlying.Names) > 0:
		for _, u := range c.Underlying.States.All {
			if u.Usable() {
				return true
			}
		}
		return false
	default:
		return c.Endpoints == nil || usable(c.Endpoints.Localities)
	}
}

// Underlying is the clusters under an aggregate cluster. It is immutable, and shares with the
// old one what has not changed.
type Underlying struct {
	// Names are in order of preference (gRFC A37), without duplicates, and without aggregate
	// clusters other than those not yet known to be.
	Names []string
	// States has the state of each.
	States pmap.Map[*Config]
}

// SameList reports whether both are aggregate clusters with the same list of clusters under them. A nil Config is none.
func (c *Config) SameList(o *Config) bool {
	return c != nil && o != nil && c.Underlying != nil && o.Underlying != nil && slices.Equal(c.Underlying.Names, o.Underlying.Names)
}
