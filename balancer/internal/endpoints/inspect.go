package endpoints

import (
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Connection is what is known of the connections to an endpoint, for diagnostics.
type Connection struct {
	// Address is that of the best connection, State its state, and Since when that began. They
	// are empty, IDLE and zero if there is none.
	Address string
	State   connectivity.State
	Since   time.Time
	// HealthCheck is the last answer of its health check, "" if there is none.
	HealthCheck string
	// Failure is the last error of a connection to the endpoint, at the time Failed, or nil.
	Failure error
	Failed  time.Time
}

// Connection describes the connections to an endpoint.
func (r *Registry) Connection(e *xdsresource.Endpoint) Connection {
	best := Connection{State: connectivity.Idle}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records[e.Address].describe(&best)
	for _, address := range e.Additional {
		r.records[address].describe(&best)
	}
	return best
}

// describe updates best by what is known of one address. The record may be nil.
func (rec *Record) describe(best *Connection) {
	if rec == nil {
		return
	}
	if rec.failed.After(best.Failed) {
		best.Failure, best.Failed = rec.failure, rec.failed
	}
	for _, c := range rec.conns {
		if best.Address == "" || rank(c.state) > rank(best.State) {
			best.Address, best.State, best.Since, best.HealthCheck = c.address, c.state, c.since, c.check
		}
	}
}
