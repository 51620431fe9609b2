// Package endpointpolicy finds the policy that picks among endpoints by its
// name: one of dynxds's own, or one that is registered with gRPC.
//
// It balances nothing itself. The names come from xdsresource.Cluster.
package endpointpolicy

import (
	"github.com/dynxds/dynxds/balancer/internal/leaf"
	"github.com/dynxds/dynxds/balancer/internal/random"
	"github.com/dynxds/dynxds/balancer/internal/ringhash"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Policy picks among endpoints.
type Policy interface {
	tree.Policy
	// Update makes the endpoints those to pick from; config is the policy's
	// configuration in JSON, or empty.
	Update(endpoints []xdsresource.Endpoint, config string)
}

// New returns the policy of the given name. A name that nobody knows gives a
// policy that fails and says so.
func New(env *tree.Env, name string, changed func()) Policy {
	switch name {
	case xdsresource.PolicyRingHash:
		return ringhash.New(env, changed)
	case xdsresource.PolicyRandom:
		return random.New(env, changed)
	default:
		return leaf.New(env, name, leaf.ForLocality, changed)
	}
}
