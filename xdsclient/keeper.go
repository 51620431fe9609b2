package xdsclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
	"github.com/dynxds/dynxds/xdsclient/internal/diskcache"
)

const (
	// writeDelay is the time from a change to its writing, and writePause the time between two
	// writings of new versions, at least. What servers refuse is taken out at once, or writeDelay after
	// the last writing.
	writeDelay = time.Second
	writePause = 10 * time.Second
	// A file is written again after an eighth of max_age, and within these limits, as its resources are
	// current while their server is connected.
	minRefresh, maxRefresh = writePause, time.Hour
	// lockRetry is the time until the next attempt to write while another process does. It doubles up to
	// writePause with each further attempt, and after lockPatience of them that is worth a warning.
	lockRetry    = 20 * time.Millisecond
	lockPatience = 10
)

// keeper keeps the resources in use on disk (resource_cache of the bootstrap), writing behind. What
// it has read from there is in stored.go. A nil keeper does nothing. file belongs to its goroutine;
// what changes is guarded by XDSClient.mu.
type keeper struct {
	client *XDSClient
	file   *diskcache.File
	// lastError is the last error of writing that was logged.
	lastError string
	// locked counts the attempts to write since another process began to.
	locked int
	// wake has a buffer of one, so that a wake-up is never lost.
	wake chan struct{}

	storedResources
	// news is what is to be written beside the resources in use: what was refused, and what was in use.
	news map[diskcache.Key]kept
	// unwritten says that something has changed since the last writing. The next one is at due, and
	// not before rest because of new versions. The last one ended at wrote.
	unwritten        bool
	due, rest, wrote time.Time
}

// kept is what is to be written of a resource.
type kept struct {
	server  string
	at      time.Time
	refused bool
	// payload is nil for what is refused, and for a collection as a whole.
	payload *payload
	taken   stamp
	name    string
}

// newKeeper returns the keeper of a client, or nil if its bootstrap has no resource_cache.
func newKeeper(c *XDSClient) *keeper {
	cache := c.config.ResourceCache
	if cache.Directory == "" {
		return nil
	}
	// What changes nothing of what servers send does not make the file foreign: its place, max_age, the
	// overrides, dns_fallback.
	identity := *c.config
	identity.ResourceCache.Directory, identity.Overrides, identity.DNSFallback = "", nil, ""
	return &keeper{
		client:          c,
		file:            diskcache.New(cache.Directory, identity.WithNode(identity.Node).Fingerprint(), cache.MaxAge),
		wake:            make(chan struct{}, 1),
		storedResources: newStoredResources(),
		news:            make(map[diskcache.Key]kept),
	}
}

// run reads the file, and then writes and restores until the context ends.
func (k *keeper) run(ctx context.Context) {
	k.load()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		for k.restoreNext() {
		}
		timer.Reset(k.untilDue())
		select {
		case <-k.wake:
		case <-timer.C:
			if k.isDue() {
				k.write()
			}
		case <-ctx.Done():
			for range 50 {
				if k.write() {
					return
				}
				<-time.After(lockRetry)
			}
			return
		}
	}
}

func (k *keeper) refresh() time.Duration {
	return min(max(k.client.config.ResourceCache.MaxAge/8, minRefresh), maxRefresh)
}

func (k *keeper) untilDue() time.Duration {
	k.client.mu.Lock()
	defer k.client.mu.Unlock()
	if k.due.IsZero() {
		k.due = time.Now().Add(k.refresh())
	}
	return time.Until(k.due)
}

func (k *keeper) isDue() bool { return k.untilDue() <= 0 }

// notify wakes the goroutine.
func (k *keeper) notify() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// schedule has the file written at a time, or before.
func (k *keeper) schedule(at time.Time) {
	k.unwritten = true
	if k.due.IsZero() || at.Before(k.due) {
		k.due = at
		k.notify()
	}
}

// changed notes that a version is in use from now on. One that must not be kept takes an older one
// of itself out of the file.
func (k *keeper) changed(taken stamp) {
	switch {
	case k == nil:
	case taken.volatile:
		k.schedule(time.Now().Add(writeDelay))
	default:
		k.schedule(later(time.Now().Add(writeDelay), k.rest))
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// refused notes that a server refuses a resource that it may have sent before.
func (k *keeper) refused(r *resource, e *lastError) {
	if k == nil || !e.refusal() || !r.inUse() {
		return
	}
	k.news[storedKey(r)] = kept{server: e.fault.Server, at: e.fault.Time(), refused: true}
	k.schedule(k.wrote.Add(writeDelay))
}

// refusal reports whether an error says that the versions before it are not to be used by a client
// that starts: the server does not have the resource, or not for this client, or has one that is
// invalid. Other errors are transient, and clients "MUST continue to use previously cached versions"
// (xRFC TP3, "Protocol Behavior").
func (e *lastError) refusal() bool { return e.state == StateNACKed || e.fault.final() }

// leaves notes that a resource is about to be no longer watched.
func (k *keeper) leaves(r *resource) {
	if k == nil || !k.unwritten {
		return
	}
	k.add(r, time.Now())
	for _, m := range r.glob.entries() {
		k.add(m, time.Now())
	}
}

// collect adds all that is in use to the news.
func (k *keeper) collect() {
	if k == nil || !k.unwritten && time.Now().Before(k.due) {
		return
	}
	now := time.Now()
	for r := range k.client.entries() {
		k.add(r, now)
	}
}

// add adds an entry to the news. A resource that was last sent under a TTL or must not be cached is not
// kept, and neither is an older version of it.
func (k *keeper) add(r *resource, now time.Time) {
	n := kept{server: r.level.server.URI, payload: r.payload, taken: r.taken, at: r.taken.time(), name: r.key.name}
	e := lastError{r.state, r.fault, false}
	switch {
	case r.taken.stored, r.payload == nil, r.fault != nil && e.refusal(): // refused has noted it
		return
	case r.taken.volatile:
		n.payload, n.refused = nil, true
	case r.glob != nil:
		n.payload = nil
	default:
		n.server = r.payload.server.URI
	}
	if ch := r.level.channel; ch != nil && ch.link.Connected() && r.state == StateACKed {
		n.at = now
	}
	k.news[storedKey(r)] = n
}

// storedKey is the key of an entry in the file.
func storedKey(r *resource) diskcache.Key {
	if c := r.collection; c != nil {
		return diskcache.Key{TypeURL: r.key.typ.TypeURL, Name: c.entry.key.name, Constraints: c.entry.key.variant, Member: r.key.name, Parameters: r.key.variant}
	}
	return diskcache.Key{TypeURL: r.key.typ.TypeURL, Name: r.key.name, Constraints: r.key.variant}
}

// record returns what is written.
func (n *kept) record(key diskcache.Key) diskcache.Record {
	r := diskcache.Record{Key: key, Server: n.server, Time: n.at, Refused: n.refused}
	if n.payload == nil {
		return r
	}
	w := wire.Wrapper{Name: n.name, Version: n.taken.version, TypeURL: key.TypeURL, Value: n.payload.raw, Parameters: n.taken.parameters.Key()}
	if e := n.taken.envelope; e != nil {
		w.Name, w.Aliases, r.Versioned = e.name, e.aliases, e.versioned
	}
	r.Resource = w.Append(nil)
	return r
}

// write writes what has changed. It reports false if another process is writing.
func (k *keeper) write() bool {
	c := k.client
	c.mu.Lock()
	k.collect()
	news := k.news
	k.news, k.unwritten, k.due = make(map[diskcache.Key]kept), false, time.Time{}
	c.mu.Unlock()
	if len(news) == 0 {
		return true
	}
	records := make([]diskcache.Record, 0, len(news))
	for key, n := range news {
		records = append(records, n.record(key))
	}
	began := time.Now()
	var left int
	var err error
	if c.ctx.Err() == nil { // who closes a client may remove the directory
		err = k.file.MakeDir()
	}
	if err == nil {
		left, err = k.file.Merge(records, began)
	}
	c.mu.Lock()
	defer c.unlock()
	pause := max(writePause, 100*time.Since(began))
	k.wrote = time.Now()
	k.rest = k.wrote.Add(pause)
	locked := errors.Is(err, diskcache.ErrLocked)
	if err != nil { // what was refused meanwhile is newer
		for key, n := range news {
			if _, known := k.news[key]; !known {
				k.news[key] = n
			}
		}
		k.unwritten, k.due = true, k.rest
		if locked {
			k.due = time.Now().Add(min(lockRetry<<min(k.locked, lockPatience), writePause))
		}
	}
	if k.locked++; !locked {
		k.locked = 0
	}
	switch {
	case err == nil && left > 0:
		k.complain("it is full, and %d resources were left out", left)
	case err == nil:
		k.lastError = ""
	case errors.Is(err, diskcache.ErrRemoved):
		k.complain("it cannot be written: %v", err)
	case !locked || k.locked > lockPatience:
		k.complain("it cannot be written, and a start without a control plane would use what is there: %v", err)
	}
	return !locked
}

// complain logs a problem of the file unless it is the last one.
func (k *keeper) complain(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); text != k.lastError {
		k.lastError = text
		k.client.warningf("xDS resource cache %s: %s", k.file.Path(), text)
	}
}

// answered notes that a server has answered. What its authorities have on disk is not used from now on.
func (k *keeper) answered(server *bootstrap.Server) {
	if k == nil {
		return
	}
	if _, known := k.answers[server.Key()]; known {
		return
	}
	k.answers[server.Key()] = struct{}{}
	for key := range k.stored {
		if servers, err := serversFor(k.client.config, key); err != nil || slices.ContainsFunc(servers, func(s *bootstrap.Server) bool { return s.Key() == server.Key() }) {
			delete(k.stored, key)
		}
	}
	for _, a := range k.client.authorities {
		if a.fromDisk && !k.usable(a) {
			a.fromDisk = false
			k.client.infof("xDS management server %s answers: its resources of %s replace those from disk", server, a)
		}
	}
}
