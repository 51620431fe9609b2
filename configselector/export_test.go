package configselector

// Version returns the version of the snapshot.
func (s *Selector) Version() uint64 { return s.routes.Version }
