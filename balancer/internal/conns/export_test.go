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
