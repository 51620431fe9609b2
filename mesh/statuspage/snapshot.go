package statuspage

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/clients"
	"github.com/dynxds/dynxds/xdsclient"
)

// snapshot is how the process is at one moment.
type snapshot struct {
	channels []inspect.Channel
	clients  []*xdsclient.Dump
	entries  []*entry
	pulse    *livestate.State
	// methods has, for each of the problems that are shown, a method whose RPCs go to the cluster that has the problem, or "".
	methods []string
	// streams are the clients of the control plane of the process, and overview is the same at a glance.
	streams  []controlplane.ClientStatus
	overview *clients.Overview
	// served is what its store has at a version. It is called for viewers of that list alone: the store is locked meanwhile. That is work, too.
	served func() (uint64, []*controlplane.Resource)
}

// entry is a resource of a client.
type entry struct {
	*xdsclient.ResourceDump
	client *xdsclient.Dump
}

// take takes a snapshot, and returns how long it has waited for balancers.
func (h *handler) take() (snap *snapshot, waited time.Duration) {
	snap = &snapshot{channels: channels.Inspect()}
	snap.streams, snap.overview = h.peers()
	snap.served = sync.OnceValues(func() (uint64, []*controlplane.Resource) {
		began := time.Now()
		version, all := h.served()
		h.snapshots.mu.Lock()
		defer h.snapshots.mu.Unlock()
		h.snapshots.work += time.Since(began)
		return version, all
	})
	for _, c := range xdsclient.Clients() {
		d := c.Dump()
		snap.clients = append(snap.clients, d)
		snap.entries = slices.Grow(snap.entries, len(d.Resources))
		for i := range d.Resources {
			snap.entries = append(snap.entries, &entry{&d.Resources[i], d})
		}
	}
	snap.pulse, waited = snap.takePulse()
	snap.methods = snap.methodsFor(snap.pulse.Problems)
	return snap, waited
}

// findEntry returns a resource of a client: of several variants or servers one that is in use, if
// there is one. It returns nil if there is none at all.
func findEntry(client *xdsclient.Dump, typeURL, name string) (found *entry) {
	for _, r := range livestate.Entries([]*xdsclient.Dump{client}, typeURL, name) {
		if found == nil || !found.Cached() && r.Cached() {
			found = &entry{r, client}
		}
	}
	return found
}

// valueOf returns the value of a resource of a client that is in use, or nothing.
func valueOf[T any](client *xdsclient.Dump, typeURL, name string) (value T) {
	if e := findEntry(client, typeURL, name); e != nil {
		value, _ = e.Value().(T)
	}
	return value
}

// snapshots has the last snapshot, which all viewers share, until nobody has looked for a while.
type snapshots struct {
	mu     sync.Mutex
	last   *snapshot
	taken  time.Time
	work   time.Duration // for the last one
	forget *time.Timer
}

// kept is how long the last snapshot is kept after the last look.
const kept = time.Minute

// maxShare bounds the time that goes into snapshots: one takes at most this part of the time
// to the next.
const maxShare = 20

// get returns the last snapshot, or a new one if that is old enough.
func (s *snapshots) get(h *handler) *snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forget == nil {
		s.forget = time.AfterFunc(kept, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.last = nil
		})
	}
	s.forget.Reset(kept)
	// The second is almost over when a browser asks again.
	if s.last != nil && time.Since(s.taken) < max(h.refresh-h.refresh/10, maxShare*s.work) {
		return s.last
	}
	s.taken = time.Now()
	snap, waited := h.take()
	s.last, s.work = snap, time.Since(s.taken)-waited
	return snap
}

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
