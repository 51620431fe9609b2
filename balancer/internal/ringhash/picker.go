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
	if p.header != "" {
		hash, ok := p.hashHeader(info)
		if !ok {
			return p.pickRandom(info)
		}
		return p.pick(info, hash)
	}
	return p.pick(info, decision.FromContext(info.Ctx).Hash())
}

func (p *picker) pick(info balancer.PickInfo, hash uint64) (balancer.PickResult, error) {
	first := p.places.placeOf(hash)
	for i := range p.places.tries() {
		e := p.places.candidate(first, i)
		switch s := p.members[e].State(); s.ConnectivityState {
		case connectivity.Ready:
			return s.Picker.Pick(info)
		case connectivity.Idle:
			p.ask(e)
			return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
		case connectivity.Connecting:
			return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
		}
	}
	return p.members[p.places.candidate(first, 0)].State().Picker.Pick(info)
}

// pickRandom is for RPCs without the header. It prefers READY endpoints and requests at most
// one connection (gRFC A76).
func (p *picker) pickRandom(info balancer.PickInfo) (balancer.PickResult, error) {
	first := p.places.placeOf(rand.Uint64())
	asked := p.policy.set.Connecting()
	for i := range p.places.tries() {
		e := p.places.candidate(first, i)
		switch s := p.members[e].State(); {
		case s.ConnectivityState == connectivity.Ready:
			return s.Picker.Pick(info)
		case s.ConnectivityState == connectivity.Idle && !asked:
			p.ask(e)
			asked = true
		}
	}
	if asked {
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

// hashHeader returns false if the RPC has no such header, or only empty values.
func (p *picker) hashHeader(info balancer.PickInfo) (uint64, bool) {
	md, _ := metadata.FromOutgoingContext(info.Ctx)
	value := strings.Join(md.Get(p.header), ",")
	return xxhash.Sum64String(value), value != ""
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
