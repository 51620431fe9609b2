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
	"github.com/dynxds/dynxds/xdsclient"
)

// snapshot is what the xDS clients of the process hold at one moment. All viewers share it.
type snapshot struct {
	channels []inspect.Channel
	clients  []*xdsclient.Dump
	entries  []*entry
	index    func() map[resourceKey][]*entry
}

// entry is a resource of a client.
type entry struct {
	*xdsclient.ResourceDump
	client *xdsclient.Dump
}

type resourceKey struct {
	client        *xdsclient.Dump
	typeURL, name string
}

func takeSnapshot() *snapshot {
	s := &snapshot{channels: channels.Inspect()}
	for _, c := range xdsclient.Clients() {
		d := c.Dump()
		s.clients = append(s.clients, d)
		s.entries = slices.Grow(s.entries, len(d.Resources))
		for i := range d.Resources {
			s.entries = append(s.entries, &entry{&d.Resources[i], d})
		}
	}
	s.index = sync.OnceValue(func() map[resourceKey][]*entry {
		index := make(map[resourceKey][]*entry, len(s.entries))
		for _, e := range s.entries {
			k := resourceKey{e.client, e.TypeURL, e.Name}
			index[k] = append(index[k], e)
		}
		return index
	})
	return s
}

// findEntry returns a resource of a client: of several variants or servers one that is in use, if
// there is one. It returns nil if there is none at all.
func (s *snapshot) findEntry(client *xdsclient.Dump, typeURL, name string) *entry {
	var found *entry
	for _, e := range s.index()[resourceKey{client, typeURL, name}] {
		if found == nil || !found.Cached() && e.Cached() {
			found = e
		}
	}
	return found
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

// snapshots has the last snapshot, as long as a viewer or the garbage collector keeps it.
type snapshots struct {
	mu    sync.Mutex
	last  weak.Pointer[snapshot]
	stale bool
	// next is the earliest time of the next one.
	next time.Time
}

// maxShare bounds the time that goes into snapshots: one takes at most this part of the time
// to the next.
const maxShare = 20

// get returns the last snapshot, or a new one if something has changed and the last one is
// old enough.
func (s *snapshots) get(refresh time.Duration) *snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, now := s.last.Value(), time.Now()
	if last != nil && (!s.stale || now.Before(s.next)) {
		return last
	}
	s.stale = false
	made := takeSnapshot()
	s.last, s.next = weak.Make(made), now.Add(max(refresh, maxShare*time.Since(now)))
	return made
}

// changed marks the last snapshot as stale.
func (s *snapshots) changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = true
}
