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

	mu sync.Mutex
	// ignored has the ignored fields of resources that were looked at, by raw bytes.
	ignored map[*byte][]xdsclient.Ignored
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

// takeSnapshot makes a snapshot. It keeps what is known of the resources of an older one.
func takeSnapshot(old *snapshot) *snapshot {
	s := &snapshot{channels: channels.Inspect(), ignored: make(map[*byte][]xdsclient.Ignored)}
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
	if old != nil {
		s.inherit(old)
	}
	return s
}

// inherit takes over what is known of resources that have not changed.
func (s *snapshot) inherit(old *snapshot) {
	old.mu.Lock()
	defer old.mu.Unlock()
	if len(old.ignored) == 0 {
		return
	}
	for _, e := range s.entries {
		if key := e.raw(); key != nil {
			if list, ok := old.ignored[key]; ok {
				s.ignored[key] = list
			}
		}
	}
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

// ignoredIn returns the fields of a resource that the program ignores. A resource is decoded
// once for that, unless it changes.
func (s *snapshot) ignoredIn(e *entry) []xdsclient.Ignored {
	key := e.raw()
	if key == nil {
		return nil
	}
	s.mu.Lock()
	list, ok := s.ignored[key]
	s.mu.Unlock()
	if ok {
		return list
	}
	list = e.Ignored()
	s.mu.Lock()
	s.ignored[key] = list
	s.mu.Unlock()
	return list
}

// raw identifies the bytes of the resource in use; nil: there are none.
func (e *entry) raw() *byte {
	if a := e.Any(); len(a.GetValue()) > 0 {
		return &a.Value[0]
	}
	return nil
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
	made := takeSnapshot(last)
	s.last, s.next = weak.Make(made), now.Add(max(refresh, maxShare*time.Since(now)))
	return made
}

// changed marks the last snapshot as stale.
func (s *snapshots) changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = true
}
