package configselector

// MirrorsDropped returns how many mirrors of RPCs were not made or given up.
func (ch *Channel) MirrorsDropped() int64 { return ch.rpcs.MirrorsDropped() }
