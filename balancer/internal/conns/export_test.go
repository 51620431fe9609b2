package conns

// Len returns the number of Records.
func (r *Registry) Len() (n int) {
	for range r.all {
		n++
	}
	return n
}
