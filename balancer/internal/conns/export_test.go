package conns

// Len returns the number of Records.
func (r *Registry) Len() (n int) {
	for range r.all {
		n++
	}
	if n != r.count {
		panic("the Registry has lost count of its Records")
	}
	return n
}

// Sweep has the sweeper run now.
func (r *Registry) Sweep() { r.sweep() }

// Session returns the Record of an address, nil if sessions do not know it.
func (r *Registry) Session(address string) *Record {
	if rec := r.record(address); rec != nil && rec.configured() {
		return rec
	}
	return nil
}

// Conn returns the best connection for sessions, nil if there is none.
func (rec *Record) Conn() *Conn { return rec.conn.Load() }
