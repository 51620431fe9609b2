package conns

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"
)

// Health is the health of one endpoint, at all its addresses, as outlier detection sees
// it (gRFCs A50, A61). A nil Health is not ejected.
type Health struct {
	Addresses []string
	ejected   atomic.Bool
	ended     func(balancer.DoneInfo)
}

// NewHealth returns the Health of an endpoint that is not ejected. ended is called at the end of each RPC to it.
func NewHealth(ended func(balancer.DoneInfo), addresses ...string) *Health {
	return &Health{ended: ended, Addresses: addresses}
}

// Ejected reports whether the endpoint is ejected.
func (h *Health) Ejected() bool { return h != nil && h.ejected.Load() }

// Eject ejects an endpoint, or ends its ejection. Its connections are notified.
func (r *Registry) Eject(h *Health, ejected bool) {
	if h.ejected.Swap(ejected) == ejected {
		return
	}
	r.Pool.mu.Lock()
	for _, address := range h.Addresses {
		if rec := r.record(address); rec != nil && rec.health.Load() == h {
			rec.reportHealthLocked()
		}
	}
	r.Pool.unlock()
}

// reportHealthLocked tells the policies of an ejection, or of its end.
func (rec *Record) reportHealthLocked() {
	for _, c := range rec.conns {
		c.reportHealthLocked()
	}
}
