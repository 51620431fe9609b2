package statuspage

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// takePulse returns the state of the process. It asks the balancers, and returns how long it has waited for those that do not answer.
func (s *snapshot) takePulse() (*livestate.State, time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), askingTime)
	defer cancel()
	state := livestate.Take(ctx, &livestate.Source{Channels: s.channels, Clients: s.clients})
	if ctx.Err() != nil {
		return state, askingTime
	}
	return state, 0
}

// methodFor returns a method that a route of a channel sends to a cluster, or "".
func (s *snapshot) methodFor(target, cluster string) string {
	for i := range s.channels {
		c := &s.channels[i]
		if c.Target != target {
			continue
		}
		_, routes, _ := s.routesOf(c)
		if routes == nil {
			continue
		}
		host := routes.VirtualHost(c.Config.Authority)
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

// routesOf returns the client of a channel and the routes that the channel has, nil if they are not known, and why there are no routes.
func (s *snapshot) routesOf(c *inspect.Channel) (client *xdsclient.Dump, routes *xdsresource.RouteConfiguration, why string) {
	config := c.Config
	if config == nil {
		return nil, nil, c.Why
	}
	of := slices.IndexFunc(s.clients, func(d *xdsclient.Dump) bool { return d.BootstrapFingerprint == config.Client })
	if of < 0 {
		return nil, nil, "The channel's client is not known any more."
	}
	client = s.clients[of]
	listener := valueOf[*xdsresource.Listener](client, typeurl.Listener, config.Listener.Name)
	switch {
	case listener == nil && c.Mode == string(channels.DNS):
		return client, nil, "DNS resolves the channel: " + c.Reason
	case listener == nil:
		return client, nil, "There is no Listener yet."
	case config.Routes != nil:
		routes = valueOf[*xdsresource.RouteConfiguration](client, typeurl.RouteConfiguration, config.Routes.Name)
	default:
		routes = listener.RouteConfig
	}
	if routes == nil {
		why = "There is no RouteConfiguration yet."
	}
	return client, routes, why
}
