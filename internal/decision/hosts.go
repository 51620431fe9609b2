package decision

import (
	"slices"
	"sync"
)

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
