package soak

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"
)

const (
	// farthest is the longest latency to a control plane or relay, near that to a backend.
	farthest = 400 * time.Millisecond
	near     = 40 * time.Millisecond
)

// networkOps are the operations on the network.
var networkOps = []op{
	{"latencies change", 6, (*run).changeLatencies},
	{"a host is cut off from control planes", 8, (*run).cutOff},
	{"connections to control planes are reset", 6, toControls(network.Reset)},
	{loses, 6, toControls(network.Lose)},
	{"connections to a backend are reset", 4, func(r *run) bool {
		b := r.backends[r.IntN(len(r.backends))]
		b.note()
		for _, c := range r.channels {
			network.Reset(c.name, b.Addr())
		}
		return true
	}},
	{"a client ends, and starts again", 8, (*run).restartClient},
}

// loses is the operation that only a keepalive notices.
const loses = "connections to control planes are lost without a word"

// toControls is the operation that does something to the connections of a host to control planes and relays.
func toControls(do func(host, addr string) int) func(*run) bool {
	return func(r *run) bool {
		host := r.drawHost()
		for _, addr := range r.controls() {
			do(host, addr)
		}
		return true
	}
}

// controls are the addresses of control planes and relays.
func (m *mesh) controls() []string {
	all := []string{m.control.Addr(), m.second.Addr(), m.policy.Addr()}
	for _, v := range relaying {
		all = append(all, m.relays[v].Addr())
	}
	return all
}

// hosts are those of clients and relays.
func (m *mesh) hosts() (all []string) {
	for _, c := range m.channels {
		all = append(all, c.name)
	}
	for _, v := range relaying {
		all = append(all, v.host())
	}
	return all
}

func (r *run) drawHost() string {
	all := r.hosts()
	return all[r.IntN(len(all))]
}

func (r *run) changeLatencies() bool {
	longest := int64(farthest) >> r.IntN(6)
	draw := func(most int64) time.Duration { return time.Duration(r.Int64N(most)) }
	for _, host := range r.hosts() {
		for _, addr := range r.controls() {
			network.SetLatency(host, addr, draw(longest), draw(longest))
		}
		for _, b := range r.backends {
			network.SetLatency(host, b.Addr(), draw(int64(near)), draw(int64(near)))
		}
	}
	return true
}

// cutOff cuts the paths from a host to some of the control planes for a while.
func (r *run) cutOff() bool {
	host, all := r.drawHost(), r.controls()
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	cut := all[:1+r.IntN(len(all))]
	return r.disrupt(host, func() func() {
		for _, addr := range cut {
			network.Cut(host, addr)
		}
		return func() {
			for _, addr := range cut {
				network.Mend(host, addr)
			}
		}
	})
}

// restartClient ends a client for a while. In a round with lies it would start with them.
func (r *run) restartClient() bool {
	c := r.channels[r.IntN(len(r.channels))]
	if c.cc == nil || r.lying {
		return false
	}
	c.end()
	r.later(func() {
		// With its resources on disk it goes on with those.
		c.fromDisk = c.cached
		if !c.cached {
			c.welcome(time.Time{})
		}
		c.begin(r)
		r.welcome()
	})
	return true
}

// moves reports whether DPDS has moved a client to another lane since the mesh settled, or would if the client started: to that of
// clients without constraints, if there is no valid DPDS resource.
func (r *run) moves(who client) bool {
	live := r.history.live()
	return who.dpds != noDPDS && (slices.ContainsFunc(live, func(c *config) bool {
		return c.dpds[who.dpds.resource()] != dpdsServed || c.handouts[who.name].instead != codes.OK
	}) || slices.ContainsFunc(lanedTypes, func(typeURL string) bool { return len(lanesOf(live, who, typeURL)) > 1 }))
}
