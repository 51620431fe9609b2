package soak

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dynxds/dynxds/internal/xdsmsg"
)

// history has the configurations that RPCs may have followed: the one that all clients
// were last known to have, and those published since. It is safe for concurrent use.
type history struct {
	mu      sync.Mutex
	entries []*entry
}

type entry struct {
	*config
	// retired is when every client was known to have a newer one, or zero.
	retired time.Time
}

func (h *history) publish(c *config) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, &entry{config: c})
}

// settle retires all but the newest, which every client now has, and forgets those that
// no RPC in progress can have followed.
func (h *history) settle(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = slices.DeleteFunc(h.entries, func(e *entry) bool {
		return !e.retired.IsZero() && now.Sub(e.retired) > 2*patience
	})
	for _, e := range h.entries[:len(h.entries)-1] {
		if e.retired.IsZero() {
			e.retired = now
		}
	}
}

// since returns the configurations that a finished RPC may have followed that began at
// the given time.
func (h *history) since(began time.Time) []*config {
	h.mu.Lock()
	defer h.mu.Unlock()
	var live []*config
	for _, e := range h.entries {
		if e.retired.IsZero() || e.retired.After(began) {
			live = append(live, e.config)
		}
	}
	return live
}

// live returns the configurations that clients may have now.
func (h *history) live() []*config { return h.since(time.Now()) }

// routes is the resource with the routes of a version, which is the same in all
// configurations of the version.
func (h *history) routes(version int) key {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.entries {
		if e.version == version {
			return e.routesKey()
		}
	}
	return key{}
}

// allowed checks where an RPC of a client went.
//
// A client may have the routes of one configuration and the endpoints of another one
// for a while: they are resources of their own, and so is the DPDS resource with the
// lanes for both. And if the cluster of an RPC was removed when its endpoint is picked,
// the newer routes choose another one, while the response headers are still those of the
// older.
func allowed(live []*config, who client, o outcome) error {
	version, to := o.version(), o.end()
	lanes := func(c *config) []lane { return lanesOf(live, who, c.routesKey().typeURL) }
	if !slices.ContainsFunc(live, func(c *config) bool { return c.version == version }) {
		return fmt.Errorf("it followed version %d, which no client may have: %v", version, live)
	}
	if !slices.ContainsFunc(live, func(c *config) bool { return c.version == version && slices.Contains(lanes(c), o.lane()) }) {
		return fmt.Errorf("it followed the routes of lane %q of version %d, which the client may not have: %v", o.lane(), version, live)
	}
	endpoints := lanesOf(live, who, xdsmsg.EndpointType)
	for _, routing := range live {
		if routing.version < version {
			continue
		}
		for _, l := range lanes(routing) {
			if leads(routing.routes[l][o.method], live, endpoints, to) {
				return nil
			}
		}
	}
	return fmt.Errorf("it followed version %d, which does not lead to backend %d (TLS: %v): %v", version, to.backend, to.secured, live)
}

// leads reports whether any of the clusters has the backend in one of the lanes in any of the configurations, and the
// security in any of them.
func leads(clusters []string, live []*config, lanes []lane, to end) bool {
	return slices.ContainsFunc(clusters, func(cluster string) bool {
		return slices.ContainsFunc(live, func(c *config) bool {
			s, ok := c.clusters[cluster]
			return ok && s.security.secured() == to.secured
		}) && slices.ContainsFunc(live, func(c *config) bool {
			return slices.ContainsFunc(lanes, func(l lane) bool {
				return slices.Contains(c.clusters[cluster].placements[l].backends(), to.backend)
			})
		})
	})
}

// tightened returns what the errors of RPCs say that fail as their cluster began to ask for stricter security: that their
// connection ends, that a ClusterLoadAssignment is missing, or that no endpoint is reached. If the cluster names another ClusterLoadAssignment, the endpoints
// in use do not serve until that is known, which an unreachable server delays.
func tightened(live []*config, names naming) (ends, missing, unreached []string) {
	for i, c := range live {
		for name, s := range c.clusters {
			for _, before := range live[:i] {
				was, ok := before.clusters[name]
				if !ok || s.security <= was.security {
					continue
				}
				unreached = append(unreached, fmt.Sprintf("no endpoint of cluster %q", names.name(xdsmsg.ClusterType, name)))
				ends = append(ends, fmt.Sprintf("cluster %q asks for stricter security", names.name(xdsmsg.ClusterType, name)))
				if s.endpoints(name) != was.endpoints(name) {
					missing = append(missing, fmt.Sprintf("ClusterLoadAssignment %q", names.endpoints(s, name)))
				}
			}
		}
	}
	return ends, missing, unreached
}
