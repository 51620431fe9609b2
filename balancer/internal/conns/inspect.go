package conns

import "github.com/dynxds/dynxds/internal/inspect"

// Describe adds to the description of an endpoint what is known of the connections to its
// addresses: the best one, and the last error of any.
func (r *Registry) Describe(d *inspect.Endpoint) {
	r.Pool.mu.Lock()
	defer r.Pool.unlock()
	var best *Conn
	for _, address := range d.Addresses {
		rec := r.record(address)
		if rec == nil {
			continue
		}
		if rec.failure != nil && rec.failed.After(d.ErrorTime) {
			d.Error, d.ErrorTime = rec.failure.Error(), rec.failed
		}
		for _, c := range rec.conns {
			if best == nil || rank(c.connectivity()) > rank(best.connectivity()) {
				best = c
			}
		}
	}
	if best == nil {
		return
	}
	d.State, d.Since = inspect.State(best.connectivity().String()), best.since
	if best.check != nil {
		d.HealthCheck = best.check.answer
	}
	if len(d.Addresses) > 1 {
		d.Connected = best.address
	}
}
