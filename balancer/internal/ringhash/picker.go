package ringhash

import (
	"errors"
	"math/rand/v2"
	"strings"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/balancer/internal/shard"
	"github.com/dynxds/dynxds/internal/decision"
)

// errNoHash ends the pick of an RPC that the interceptors have not seen.
var errNoHash = errors.New("the RPC has no hash: it did not go through the dynxds interceptors")

// picker is immutable. The states of the endpoints that it leads to are not: one that
// changes does not make another picker.
type picker struct {
	ring    ring
	members []*shard.Member
	// header is the header to hash, or empty.
	header string
	// connecting says whether an endpoint is CONNECTING.
	connecting func() bool
	// connect has an endpoint connected. It does not wait.
	connect func(*shard.Member)
}

// Pick goes to the first endpoint from the hash on that is READY or may become
// so (gRFC A61, "Ring Hash"). It takes no lock and, unless it is a header that
// is hashed, allocates nothing.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	if p.header != "" {
		hash, ok := p.hashHeader(info)
		if !ok {
			return p.pickRandom(info)
		}
		return p.pick(info, hash)
	}
	d := decision.FromContext(info.Ctx)
	if d == nil {
		return balancer.PickResult{}, errNoHash
	}
	return p.pick(info, d.Hash())
}

func (p *picker) pick(info balancer.PickInfo, hash uint64) (balancer.PickResult, error) {
	first := p.ring.find(hash)
	for i := range p.ring {
		e := p.at(first + i)
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
	return p.members[p.at(first)].State().Picker.Pick(info)
}

// pickRandom is for RPCs without the header. It prefers what is READY and has
// at most one endpoint connected (gRFC A76).
func (p *picker) pickRandom(info balancer.PickInfo) (balancer.PickResult, error) {
	first := p.ring.find(rand.Uint64())
	asked := p.connecting()
	for i := range p.ring {
		e := p.at(first + i)
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
	return p.members[p.at(first)].State().Picker.Pick(info)
}

// at returns the endpoint of the i-th entry, counted round and round.
func (p *picker) at(i int) int { return p.ring[i%len(p.ring)].endpoint }

func (p *picker) ask(endpoint int) {
	m := p.members[endpoint]
	if !m.Asked.Load() && m.Asked.CompareAndSwap(false, true) {
		p.connect(m)
	}
}

// hashHeader is false if the RPC has no such header with a value.
func (p *picker) hashHeader(info balancer.PickInfo) (uint64, bool) {
	md, _ := metadata.FromOutgoingContext(info.Ctx)
	value := strings.Join(md.Get(p.header), ",")
	return xxhash.Sum64String(value), value != ""
}
