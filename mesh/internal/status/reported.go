package status

import (
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/mesh/explain"
)

// report adds to a source how the channels to a target are.
func report(s *explain.Source, state *livestate.State, target string) {
	for _, server := range state.Servers {
		s.Client.Servers = append(s.Client.Servers, explain.Server{URI: server.URI, Connected: server.Connected, Error: server.Error})
	}
	for i := range state.Channels {
		if c := &state.Channels[i]; sameTarget(c.Target, target) {
			s.Client.Channel = c.State
		}
	}
	clusters := make(map[string]*livestate.Cluster)
	for _, c := range state.Clusters {
		if sameTarget(c.Target, target) {
			clusters[c.Name] = c
		}
	}
	s.Reported = func(name string) *livestate.Cluster { return clusters[name] }
}
