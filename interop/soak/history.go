package soak

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// history is which configurations RPCs may have gone by: the one that all
// clients were last known to have, and those published since. It is safe for
// concurrent use.
type history struct {
	mu      sync.Mutex
	entries []*entry
}

type entry struct {
	*config
	// retired is when every client was known to have a newer one, zero if that
	// is not so yet.
	retired time.Time
}

func (h *history) publish(c *config) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, &entry{config: c})
}

// settle retires all but the newest, which every client now has, and forgets
// what no RPC that is still under way can have gone by.
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

// since returns the configurations that an RPC may have gone by that began at
// the given time, and has ended.
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

// allowed says what is wrong with an RPC that was routed by the given version
// and answered by the backend, if anything is.
//
// A client may have the routes of one configuration and the endpoints of
// another one for a while: they are resources of their own. And an RPC whose
// cluster is gone when its endpoint is picked gets another one by the newer
// routes, while the response headers are those of the older.
func allowed(live []*config, method string, version, backend int) error {
	if !slices.ContainsFunc(live, func(c *config) bool { return c.version == version }) {
		return fmt.Errorf("it went by version %d, which is none of those that clients may have: %v", version, live)
	}
	for _, routing := range live {
		if routing.version >= version && leads(routing.routes[method], live, backend) {
			return nil
		}
	}
	return fmt.Errorf("it went by version %d, which does not lead to backend %d: %v", version, backend, live)
}

// leads reports whether any of the clusters has the backend in any of the
// configurations.
func leads(clusters []string, live []*config, backend int) bool {
	for _, cluster := range clusters {
		for _, c := range live {
			if slices.Contains(c.clusters[cluster].backends(), backend) {
				return true
			}
		}
	}
	return false
}
