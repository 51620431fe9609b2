package explain

// live adds the state of the running channel, if the source knows it.
func (e *explainer) live(*Cluster) {}

func (e *explainer) liveAggregate(*Cluster) bool { return false }
