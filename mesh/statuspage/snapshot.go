package statuspage

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/xdsclient"
)

// snapshot is how the process is at one moment: what its xDS clients hold, and the parts that are made when the first viewer is shown them.
type snapshot struct {
	channels []inspect.Channel
	clients  []*xdsclient.Dump
	entries  []*entry
	pulse    func() *pulse
	// peers are the clients of the control plane of the process, and served is what its store has.
	peers  func() peers
	served func() served
}

// entry is a resource of a client.
type entry struct {
	*xdsclient.ResourceDump
	client *xdsclient.Dump
}

// take takes a snapshot. Its parts are work of s, too.
func (s *snapshots) take(h *handler) *snapshot {
	snap := &snapshot{channels: channels.Inspect()}
	for _, c := range xdsclient.Clients() {
		d := c.Dump()
		snap.clients = append(snap.clients, d)
		snap.entries = slices.Grow(snap.entries, len(d.Resources))
		for i := range d.Resources {
			snap.entries = append(snap.entries, &entry{&d.Resources[i], d})
		}
	}
	snap.pulse = part(s, snap.takePulse)
	snap.peers, snap.served = part(s, h.peers), part(s, h.served)
	return snap
}

// part returns what make does, which is called once, and whose time counts as work but for what it waited.
func part[T any](s *snapshots, make func() (made T, waited time.Duration)) func() T {
	return sync.OnceValue(func() T {
		began := time.Now()
		made, waited := make()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.work += time.Since(began) - waited
		return made
	})
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

// id identifies the entry in the addresses of the page. Names may be too long for that.
func (e *entry) id() string {
	return idOf(e.client.BootstrapFingerprint, e.TypeURL, e.Name, e.Constraints.Key(), e.Parameters.Key(), fmt.Sprint(e.Member), e.Server)
}

func idOf(parts ...string) string {
	sum := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(sum, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// snapshots has the last snapshot, as long as a viewer or the garbage collector keeps it. All viewers share it.
type snapshots struct {
	mu    sync.Mutex
	last  weak.Pointer[snapshot]
	taken time.Time
	work  time.Duration // for the last one
}

// maxShare bounds the time that goes into snapshots: one takes at most this part of the time
// to the next.
const maxShare = 20

// get returns the last snapshot, or a new one if that is old enough.
func (s *snapshots) get(h *handler) *snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The second is almost over when the next tick comes.
	if last := s.last.Value(); last != nil && time.Since(s.taken) < max(h.refresh-h.refresh/10, maxShare*s.work) {
		return last
	}
	s.taken = time.Now()
	made := s.take(h)
	s.last, s.work = weak.Make(made), time.Since(s.taken)
	return made
}
