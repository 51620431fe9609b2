package controlplane

import "context"

// Await waits until ok has returned true for each present stream, or until the context ends, and
// returns the number of streams for which it has not. Streams that have ended, or begin later, do
// not count.
//
// ok is called for every stream at first, and then for a stream after each of its requests, or after several. It is
// called without locks, for one stream after the other.
func (s *Server) Await(ctx context.Context, ok func(ClientStatus) bool) (left int) {
	wake := make(chan struct{}, 1)
	s.waits.Store(wake, nil)
	defer s.waits.Delete(wake)
	// seen has for each stream that is left the changes that ok has seen, and 1 more.
	seen := map[*stream]uint64{}
	for _, st := range s.present() {
		seen[st] = 0
	}
	for {
		for st, before := range seen {
			changes := st.last.changes.Load() + 1
			if changes == before {
				continue
			}
			seen[st] = changes
			if status, present := s.Client(st.id); !present || ok(status) {
				delete(seen, st)
			}
		}
		if len(seen) == 0 {
			return 0
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return len(seen)
		}
	}
}

// noteChange has the calls of Await look at the stream again, as a request was carried out or the stream has ended.
func (s *stream) noteChange() {
	s.last.changes.Add(1)
	s.waits.Range(func(wake, _ any) bool {
		select {
		case wake.(chan struct{}) <- struct{}{}:
		default:
		}
		return true
	})
}
