package decision

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Attempt is the context of an attempt of which the picker has to know more than where it goes:
// each retry, and each attempt of a route with per-try timeouts or hedging. It is the Context of the
// attempt's Decision, so that a Decision is no larger for it. The fields are set before gRPC
// gets the attempt.
type Attempt struct {
	context.Context
	Retry bool // the RPC has been attempted before
	// Hosts, if not nil, are those that a retry avoids.
	Hosts *Hosts
	// Picked, if not nil, is called when the picker has found an endpoint for the attempt,
	// again if gRPC picks for it again.
	Picked func()
	// Hedged says that attempts of the RPC are under way at the same time, so that the failure to
	// find an endpoint for one is its own.
	Hedged bool

	failure atomic.Uint32          // if Hedged; see Extra.failure
	host    atomic.Pointer[string] // if Hedged; see SetHost
}

// Attempt returns the Attempt that d is for, or nil. d may be nil.
func (d *Decision) Attempt() *Attempt {
	if d == nil || d.Extra == nil {
		return nil
	}
	a, _ := d.Context.(*Attempt)
	return a
}

// SetHost reports to the filter that keeps the RPC with an endpoint which one the picker has found for
// the attempt. Of attempts that are under way at the same time, Chosen does that. There is an
// Extra.HostOverride.
func (d *Decision) SetHost(addresses *string) {
	if a := d.Attempt(); a != nil && a.Hedged {
		a.host.Store(addresses)
		return
	}
	d.Extra.HostOverride.SetHost(addresses)
}

// Chosen is called for the hedged attempt that is the RPC, once or more often.
func (d *Decision) Chosen() {
	if a := d.Attempt(); a != nil && d.Extra.HostOverride != nil {
		if host := a.host.Load(); host != nil {
			d.Extra.HostOverride.SetHost(host)
		}
	}
}

// Hosts are the endpoints that attempts of one RPC were sent to. They are safe for concurrent use.
type Hosts struct {
	// Picks is how often a pick that finds one of them is repeated.
	Picks int

	mu        sync.Mutex
	addresses []string
	room      [2]string // for addresses, as most RPCs need no more
}

// Has reports whether an attempt was sent to the address.
func (h *Hosts) Has(address string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.addresses, address)
}

func (h *Hosts) add(address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.addresses == nil {
		h.addresses = h.room[:0]
	}
	if !slices.Contains(h.addresses, address) {
		h.addresses = append(h.addresses, address)
	}
}
