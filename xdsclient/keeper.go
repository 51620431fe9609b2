package xdsclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dynxds/dynxds/internal/bounds"
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
	// news is what is to be written beside the resources in use: what was refused, and what was in use. Its
	// cost is bounded (bounds.UnwrittenCache).
	news     map[diskcache.Key]kept
	newsCost int
	// discard says that the next writing takes the place of the file, as more was refused than news holds.
	discard bool
	// last is what was in use when the client was closed, or nil.
	last map[diskcache.Key]kept
	// failed says that the last writing failed, and not because another process was writing. Nothing is then
	// kept that is not in use.
	failed bool
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
	k.keep(storedKey(r), kept{server: e.fault.Server, at: e.fault.Time(), refused: true})
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
	k.keepUsed(r)
	for _, m := range r.glob.entries() {
		k.keepUsed(m)
	}
}

// keepUsed keeps an entry that is about to be no longer in use.
func (k *keeper) keepUsed(r *resource) {
	if n, ok := k.used(r, time.Now()); ok && (n.refused || !k.failed) {
		k.keep(storedKey(r), n)
	}
}

// keep adds to the news, as far as they are allowed to grow.
func (k *keeper) keep(key diskcache.Key, n kept) {
	before, known := k.news[key]
	if known {
		k.newsCost -= before.cost(&key)
		delete(k.news, key)
	}
	switch cost := n.cost(&key); {
	case k.discard && n.refused: // what is refused is in the old file alone
	case k.newsCost+cost <= bounds.UnwrittenCache:
		k.news[key] = n
		k.newsCost += cost
	case n.refused || before.refused:
		k.discard = true
		maps.DeleteFunc(k.news, func(key diskcache.Key, n kept) bool {
			if n.refused {
				k.newsCost -= n.cost(&key)
			}
			return n.refused
		})
	}
}

// cost is about the memory that is held for the resource, in bytes.
func (n *kept) cost(key *diskcache.Key) int {
	cost := 400 + len(key.TypeURL) + len(key.Name) + len(key.Constraints) + len(key.Member) + len(key.Parameters)
	if n.payload != nil {
		cost += len(n.payload.raw)
	}
	return cost
}

// collect has what is in use by now kept for the last writing of a client that is about to be closed.
func (k *keeper) collect() {
	if k == nil || !k.unwritten && time.Now().Before(k.due) {
		return
	}
	k.last = k.inUse()
}

// inUse returns all that is in use.
func (k *keeper) inUse() map[diskcache.Key]kept {
	all := make(map[diskcache.Key]kept)
	now := time.Now()
	for r := range k.client.entries() {
		if n, ok := k.used(r, now); ok {
			all[storedKey(r)] = n
		}
	}
	return all
}

// used returns what is written of an entry, if something is. A resource that was last sent under a TTL or must not
// be cached is not kept, and neither is an older version of it.
func (k *keeper) used(r *resource, now time.Time) (n kept, ok bool) {
	n = kept{server: r.level.server.URI, payload: r.payload, taken: r.taken, at: r.taken.time(), name: r.key.name}
	e := lastError{r.state, r.fault, false}
	switch {
	case r.taken.stored, r.payload == nil, r.fault != nil && e.refusal(): // refused has noted it
		return kept{}, false
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
	return n, true
}

// storedKey is the key of an entry in the file.
func storedKey(r *resource) diskcache.Key {
	if c := r.collection; c != nil {
		return diskcache.Key{TypeURL: r.key.typ.TypeURL, Name: c.entry.key.name, Constraints: c.entry.key.variant, Member: r.key.name, Parameters: r.key.variant}
	}
	return diskcache.Key{TypeURL: r.key.typ.TypeURL, Name: r.key.name, Constraints: r.key.variant}
}

// secured is a resource that may ask for security of connections.
type secured interface{ Secured() bool }

// record returns what is written.
func (n kept) record(key diskcache.Key) diskcache.News {
	r := diskcache.News{Record: diskcache.Record{Key: key, Server: n.server, Time: n.at, Refused: n.refused}}
	if n.payload == nil {
		return r
	}
	if s, ok := n.payload.value.(secured); ok {
		r.Secured = s.Secured()
	}
	if e := n.taken.envelope; e != nil {
		r.Versioned = e.versioned
	}
	r.Encode = func(b []byte) []byte {
		w := wire.Wrapper{Name: n.name, Version: n.taken.version, TypeURL: key.TypeURL, Value: n.payload.raw, Parameters: n.taken.parameters.Key()}
		if e := n.taken.envelope; e != nil {
			w.Name, w.Aliases = e.name, e.aliases
		}
		return w.Append(b)
	}
	return r
}

// takeNews takes what is to be written.
func (k *keeper) takeNews() (used, news map[diskcache.Key]kept, discard bool) {
	k.client.mu.Lock()
	defer k.client.mu.Unlock()
	if used = k.last; used == nil && (k.unwritten || !time.Now().Before(k.due)) {
		used = k.inUse()
	}
	news, discard = k.news, k.discard
	k.news, k.newsCost, k.discard = make(map[diskcache.Key]kept), 0, false
	k.unwritten, k.due = false, time.Time{}
	return used, news, discard
}

// giveBack takes back what could not be written: what was refused, and what was in use if it is tried again soon.
// What was refused meanwhile is newer.
func (k *keeper) giveBack(news map[diskcache.Key]kept, discard, soon bool) {
	k.discard = k.discard || discard
	for key, n := range news {
		if _, known := k.news[key]; !known && (n.refused || soon) {
			k.keep(key, n)
		}
	}
}

// write writes what has changed. It reports false if another process is writing.
func (k *keeper) write() bool {
	c := k.client
	used, news, discard := k.takeNews()
	if len(used)+len(news) == 0 && !discard {
		return true
	}
	records := make([]diskcache.News, 0, len(used)+len(news))
	for key, n := range used {
		records = append(records, n.record(key))
	}
	for key, n := range news {
		if _, known := used[key]; !known {
			records = append(records, n.record(key))
		}
	}
	began := time.Now()
	var left int
	var err error
	if c.ctx.Err() == nil { // who closes a client may remove the directory
		err = k.file.MakeDir()
	}
	if err == nil {
		left, err = k.file.Merge(records, discard, began)
	}
	c.mu.Lock()
	defer c.unlock()
	pause := max(writePause, 100*time.Since(began))
	k.wrote = time.Now()
	k.rest = k.wrote.Add(pause)
	locked := errors.Is(err, diskcache.ErrLocked)
	k.failed = err != nil && !locked
	if err != nil {
		k.giveBack(news, discard, locked)
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
