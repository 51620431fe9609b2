package ringhash

import (
	"math/rand/v2"
	"strings"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/balancer/internal/perendpoint"
	"github.com/dynxds/dynxds/internal/decision"
)

// picker is immutable. The states of the endpoints are not: their changes do not need a new
// picker.
type picker struct {
	policy  *Policy
	places  places
	members []*perendpoint.Member
	// header is hashed in place of what the route's hash policies give, unless it is empty.
	header string
}

// Pick picks the first endpoint, from the hash on, that is READY or may become READY (gRFC A61,
// "Ring Hash"). It takes no lock, and allocates nothing unless it has to hash a header.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	if p.header == "" {
		return p.pick(info, decision.FromContext(info.Ctx).Hash(), false)
	}
	md, _ := metadata.FromOutgoingContext(info.Ctx)
	if value := strings.Join(md.Get(p.header), ","); value != "" {
		return p.pick(info, xxhash.Sum64String(value), false)
	}
	return p.pick(info, rand.Uint64(), true)
}

// pick picks by a hash. The hash is random if the RPC lacks the header, or has empty values only: such an RPC prefers READY endpoints
// and requests at most one connection (gRFC A76).
func (p *picker) pick(info balancer.PickInfo, hash uint64, random bool) (balancer.PickResult, error) {
	first := p.places.placeOf(hash)
	waits := random && p.policy.set.Connecting()
	for i := range p.places.tries() {
		e := p.places.candidate(first, i)
		switch s := p.members[e].State(); {
		case s.ConnectivityState == connectivity.Ready:
			return s.Picker.Pick(info)
		case s.ConnectivityState == connectivity.Idle && !waits:
			p.ask(e)
			waits = true
		case s.ConnectivityState == connectivity.Connecting:
			waits = true
		}
		if waits && !random {
			break
		}
	}
	if waits {
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	return p.members[p.places.candidate(first, 0)].State().Picker.Pick(info)
}

func (p *picker) ask(endpoint int) {
	m := p.members[endpoint]
	if !m.Requested.Load() && m.Requested.CompareAndSwap(false, true) {
		p.policy.env.Loop.PostFromPick(func() { p.policy.connect(m) })
	}
}

// places map hashes to endpoints: a ring or a lookup. They are immutable, and place at least one endpoint.
type places interface {
	// placeOf returns the place of a hash.
	placeOf(hash uint64) int
	// candidate returns the i-th endpoint to try for the hash at a place; i is less than tries.
	candidate(place, i int) int
	// tries is how many candidates there are for a hash: at least one for each endpoint that has a
	// place.
	tries() int
}
