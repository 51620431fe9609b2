package conns

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/internal/changes"
)

// Health is the health of one endpoint, at all its addresses, as outlier detection sees
// it (gRFCs A50, A61). A nil Health is not ejected.
type Health struct {
	addresses []string
	// succeeded and failed count how RPCs ended.
	succeeded, failed atomic.Uint64
	ejected           atomic.Bool
	ended             func(balancer.DoneInfo)
}

// NewHealth returns the Health of an endpoint that is not ejected. ended is called at the end of each RPC to it.
func NewHealth(ended func(balancer.DoneInfo), addresses ...string) *Health {
	return &Health{ended: ended, addresses: addresses}
}

func (h *Health) count(info balancer.DoneInfo) {
	switch {
	case info.Err != nil:
		h.failed.Add(1)
	case info.BytesReceived:
		h.succeeded.Add(1)
	default:
		// The connection had ended before the RPC was sent, and gRPC picked again.
	}
	h.ended(info)
}

// TakeCalls returns how many RPCs have succeeded and failed since the last TakeCalls.
func (h *Health) TakeCalls() (succeeded, failed uint64) {
	return h.succeeded.Swap(0), h.failed.Swap(0)
}

// Ejected reports whether the endpoint is ejected.
func (h *Health) Ejected() bool { return h != nil && h.ejected.Load() }

// Eject ejects an endpoint, or ends its ejection. Its connections are notified.
func (r *Registry) Eject(h *Health, ejected bool) {
	if h.ejected.Swap(ejected) == ejected {
		return
	}
	r.Pool.mu.Lock()
	for _, address := range h.addresses {
		if rec := r.record(address); rec != nil && rec.health.Load() == h {
			rec.reportHealthLocked()
		}
	}
	r.Pool.unlock()
	changes.Touch()
}

// reportHealthLocked tells the policies of an ejection, or of its end.
func (rec *Record) reportHealthLocked() {
	for _, c := range rec.conns {
		c.reportHealthLocked()
	}
}
