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
	calls     atomic.Pointer[calls]
	ejected   atomic.Bool
	// runs is nil unless consecutive failures count.
	runs atomic.Pointer[runCounter]
}

// calls counts how RPCs ended.
type calls struct{ succeeded, failed atomic.Uint64 }

// NewHealth returns the Health of an endpoint that is not ejected.
func NewHealth(addresses ...string) *Health {
	h := &Health{addresses: addresses}
	h.calls.Store(new(calls))
	return h
}

func (h *Health) count(info balancer.DoneInfo) {
	switch calls := h.calls.Load(); {
	case info.Err != nil:
		calls.failed.Add(1)
	case info.BytesReceived:
		calls.succeeded.Add(1)
	default:
		// The connection had ended before the RPC was sent, and gRPC picked again.
	}
	if runs := h.runs.Load(); runs != nil {
		runs.count(info)
	}
}

// TakeCalls returns how many RPCs have succeeded and failed since the last TakeCalls.
func (h *Health) TakeCalls() (succeeded, failed uint64) {
	calls := h.calls.Swap(new(calls))
	return calls.succeeded.Load(), calls.failed.Load()
}

// Ejected reports whether the endpoint is ejected.
func (h *Health) Ejected() bool { return h != nil && h.ejected.Load() }

// Eject ejects an endpoint, or ends its ejection. Its connections are notified.
func (r *Registry) Eject(h *Health, ejected bool) {
	if h.ejected.Swap(ejected) == ejected {
		return
	}
	r.mu.Lock()
	var conns []*Conn
	for _, address := range h.addresses {
		if rec := r.records[address]; rec != nil && rec.health.Load() == h {
			conns = append(conns, rec.conns...)
		}
	}
	r.mu.Unlock()
	changes.Touch()
	for _, c := range conns {
		c.reportHealth()
	}
}
