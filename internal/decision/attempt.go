package decision

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dynxds/dynxds/httpfilter"
)

// Attempt is the context of an attempt for which the picker needs more than its cluster: each retry, and each
// attempt of a route with per-try timeouts or hedging. It is the Context of the attempt's Decision, so that a
// Decision is no larger for it. The fields are set before gRPC gets the attempt.
type Attempt struct {
	context.Context
	Retry bool // the RPC has been attempted before
	// Hosts, if not nil, are those that a retry avoids.
	Hosts *Hosts
	// Picked, if not nil, is called when the picker has found an endpoint for the attempt,
	// again if gRPC picks for it again.
	Picked func()

	// These are not shared, as attempts may be under way at the same time.

	failure atomic.Uint32 // see Extra.failure
	host    atomic.Pointer[string]
	won     atomic.Bool
	// metadata: see Extra.metadata.
	metadata atomic.Pointer[httpfilter.Metadata]
}

// SetHost is called by the picker with the addresses of the endpoint that it has found for an RPC
// with a HostOverride. It is that of the RPC once the attempt has won.
func (d *Decision) SetHost(addresses *string) {
	if a := d.Attempt(); a != nil {
		a.host.Store(addresses)
		d.reportHost(a)
		return
	}
	d.Extra.HostOverride.SetHost(addresses)
}

// Won is called when the RPC, which may have several attempts, is decided to be this one.
func (d *Decision) Won() {
	if a := d.Attempt(); a != nil {
		a.won.Store(true)
		d.reportHost(a)
	}
}

func (d *Decision) reportHost(a *Attempt) {
	if host, o := a.host.Load(), d.Extra.HostOverride; host != nil && o != nil && a.won.Load() {
		o.SetHost(host)
	}
}

// Attempt returns the Attempt that d is for, or nil. d may be nil.
func (d *Decision) Attempt() *Attempt {
	if d == nil || d.Extra == nil {
		return nil
	}
	a, _ := d.Context.(*Attempt)
	return a
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
