package conns

// Len returns the number of Records.
func (r *Registry) Len() int {
	r.Pool.mu.Lock()
	defer r.Pool.unlock()
	return len(r.records)
}
