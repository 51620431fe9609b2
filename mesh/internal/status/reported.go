package status

import (
	"github.com/dynxds/dynxds/internal/inspect"
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
	s.Reported = func(name string) *explain.Reported {
		if c := clusters[name]; c != nil {
			return reportedOf(c)
		}
		return nil
	}
}

func reportedOf(c *livestate.Cluster) *explain.Reported {
	e := &c.Endpoints
	r := &explain.Reported{
		Cluster:     inspect.Cluster{Name: c.Name, Phase: inspect.Phase(c.Phase), State: inspect.State(c.State), Error: c.Error},
		Connections: Connected(e), Bad: make(map[string]inspect.Endpoint, len(c.BadEndpoints)),
		Complete: e.Connecting+e.Idle == 0 && e.Failing+e.Ejected+e.Unhealthy == len(c.BadEndpoints),
	}
	if text := rpcs(c.RPCs); text != "" {
		r.RPCs = text[len("; "):]
	}
	for _, bad := range c.BadEndpoints {
		endpoint := inspect.Endpoint{State: inspect.State(bad.State), Error: bad.Error}
		if bad.EjectedBy != "" {
			endpoint.Ejection = &inspect.Ejection{Method: bad.EjectedBy, Until: bad.EjectedUntil}
		}
		r.Bad[bad.Address] = endpoint
	}
	return r
}
