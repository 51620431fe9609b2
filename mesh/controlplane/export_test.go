package controlplane

// SetPace makes a store give others their turn before each item, and send a client's own subscriptions in small
// pieces.
func SetPace(s *Store, due int) { s.pace = pace{due: due} }

// SetLimit sets a limit of what all clients of a server hold, by its name, before there are any.
func (s *Server) SetLimit(name string, limit int64) {
	for of := range kinds {
		if limitsOfAll[of].name == name {
			s.quotas.set(of, limit)
		}
	}
}

// Held returns how much all clients hold of the limits for all, added up.
func (s *Server) Held() (held int64) {
	for _, quota := range s.quotas.of {
		held += quota.Used()
	}
	return held
}

// count returns the number of topics that are due.
func (s *items) count() int { return len(s.now.m) + len(s.later.m) }
