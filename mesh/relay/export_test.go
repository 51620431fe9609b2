package relay

// LimitNodes sets the limit of the bytes of the nodes of groups without clients, before there are any.
func (r *Relay) LimitNodes(bytes int64) { r.maxIdleNodes = bytes }
