package statuspage

import (
	"context"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// pulse is how the process is at one moment. All viewers share it.
type pulse struct {
	*livestate.State
	// methods has, for the problems with clusters, a method whose RPCs go there.
	methods map[int]string
}

// pulses has the last pulse, as long as a viewer or the garbage collector keeps it.
type pulses struct {
	mu   sync.Mutex
	last weak.Pointer[pulse]
	// next is the earliest time of the next one.
	next time.Time
	// making is closed when the next one is there. It is nil unless one is being made.
	making chan struct{}
}

// get returns the last pulse, or a new one if the last one is old enough. While it is made, other viewers are shown the last one.
func (p *pulses) get(ctx context.Context, snap *snapshot, refresh time.Duration) *pulse {
	for {
		p.mu.Lock()
		last, making := p.last.Value(), p.making
		ready := last != nil && (making != nil || time.Now().Before(p.next))
		mine := !ready && making == nil
		if mine {
			p.making = make(chan struct{})
		}
		p.mu.Unlock()
		switch {
		case ready:
			return last
		case mine:
			return p.make(ctx, snap, refresh)
		}
		<-making
	}
}

// make makes a pulse. As with snapshots, the work takes at most a part of the time. Waiting for a balancer that does not answer
// is no work. A viewer that leaves does not end the asking of balancers, as others are shown the pulse, too.
func (p *pulses) make(ctx context.Context, snap *snapshot, refresh time.Duration) (made *pulse) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askingTime)
	defer cancel()
	defer func() {
		work := time.Since(began)
		if ctx.Err() != nil {
			work -= askingTime
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		// The second is almost over when the next tick comes.
		p.last, p.next = weak.Make(made), began.Add(max(refresh-refresh/10, maxShare*work))
		close(p.making)
		p.making = nil
	}()
	made = &pulse{State: livestate.Take(ctx, &livestate.Source{Channels: snap.channels, Clients: snap.clients}), methods: make(map[int]string)}
	for i := range made.Problems[:min(len(made.Problems), livestate.MaxProblems)] {
		if problem := &made.Problems[i]; problem.Cluster != "" {
			made.methods[i] = snap.methodFor(problem.Target, problem.Cluster)
		}
	}
	return made
}

// pulse returns how the process is. A stream keeps it until the next one.
func (v *view) pulse() *pulse {
	if v.kept == nil {
		v.kept = v.handler.pulses.get(v.ctx, v.snap, v.handler.refresh)
	}
	return v.kept
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
			for d := range destinations(r) {
				if d.Cluster == cluster {
					return methodOf(&r.Match)
				}
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
	routes := s.routesOf(s.clientOf(c), c.Config)
	if routes == nil {
		return nil
	}
	return routes.VirtualHost(c.Config.Authority)
}

// routesOf returns the routes of a channel, nil if it has none yet.
func (s *snapshot) routesOf(client *xdsclient.Dump, config *inspect.Config) *xdsresource.RouteConfiguration {
	if client == nil {
		return nil
	}
	l, _ := valueOf[*xdsresource.Listener](s.findEntry(client, typeurl.Listener, config.Listener.Name))
	switch {
	case l == nil:
		return nil
	case config.Routes == nil:
		return l.RouteConfig
	default:
		routes, _ := valueOf[*xdsresource.RouteConfiguration](s.findEntry(client, typeurl.RouteConfiguration, config.Routes.Name))
		return routes
	}
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
