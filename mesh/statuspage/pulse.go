package statuspage

import (
	"context"
	"strings"
	"time"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// pulse is the state of the process.
type pulse struct {
	*livestate.State
	// methods has, for the problems with clusters, a method whose RPCs go there.
	methods map[int]string
}

// takePulse asks the balancers, and returns how long it has waited for those that do not answer.
func (s *snapshot) takePulse() (*pulse, time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), askingTime)
	defer cancel()
	p := &pulse{State: livestate.Take(ctx, &livestate.Source{Channels: s.channels, Clients: s.clients}), methods: make(map[int]string)}
	for i := range p.Problems[:min(len(p.Problems), livestate.MaxProblems)] {
		if problem := &p.Problems[i]; problem.Cluster != "" {
			p.methods[i] = s.methodFor(problem.Target, problem.Cluster)
		}
	}
	if ctx.Err() != nil {
		return p, askingTime
	}
	return p, 0
}

// methodFor returns a method that a route of a channel sends to a cluster, or "".
func (s *snapshot) methodFor(target, cluster string) string {
	for i := range s.channels {
		c := &s.channels[i]
		if c.Target != target || c.Config == nil {
			continue
		}
		host := s.hostOf(c)
		if host == nil {
			continue
		}
		for _, r := range host.Routes {
			if leadsTo(r, func(name string) bool { return name == cluster }) {
				return methodOf(&r.Match)
			}
		}
	}
	return ""
}

// methodOf returns a method whose path a route matches, or "".
func methodOf(m *matching.Route) string {
	if m.PathKind == matching.PathRegex {
		return ""
	}
	if m.PathKind == matching.PathExact || strings.Count(m.Path, "/") > 1 && !strings.HasSuffix(m.Path, "/") {
		return m.Path
	}
	switch path := strings.TrimSuffix(m.Path, "/"); path {
	case "":
		return "/any.Service/Method"
	default:
		return path + "/Method"
	}
}

// hostOf returns the virtual host of a configured channel, or nil.
func (s *snapshot) hostOf(c *inspect.Channel) *xdsresource.VirtualHost {
	routes := routesOf(s.clientOf(c), c.Config)
	if routes == nil {
		return nil
	}
	return routes.VirtualHost(c.Config.Authority)
}

// routesOf returns the routes of a channel, nil if it has none yet.
func routesOf(client *xdsclient.Dump, config *inspect.Config) *xdsresource.RouteConfiguration {
	if client == nil {
		return nil
	}
	if config.Routes != nil {
		return valueOf[*xdsresource.RouteConfiguration](client, typeurl.RouteConfiguration, config.Routes.Name)
	}
	if l := valueOf[*xdsresource.Listener](client, typeurl.Listener, config.Listener.Name); l != nil {
		return l.RouteConfig
	}
	return nil
}

// clientOf returns the client that a configured channel uses.
func (s *snapshot) clientOf(channel *inspect.Channel) *xdsclient.Dump {
	for _, c := range s.clients {
		if c.BootstrapFingerprint == channel.Config.Client {
			return c
		}
	}
	return nil
}
