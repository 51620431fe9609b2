package configselector

// MirrorsDropped returns how many mirrors of RPCs were not sent or not completed.
func (ch *Channel) MirrorsDropped() int64 { return ch.rpcs.MirrorsDropped() }

// Version returns the version of the snapshot.
func (s *Selector) Version() uint64 { return s.routes.Version }
