package xdsclient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
	"github.com/dynxds/dynxds/xdsclient/internal/diskcache"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

const (
	// writeDelay is the time from a change to its writing, and writePause the time between two
	// writings of new versions, at least. A resource that servers refuse is taken out at once, or writeDelay after
	// the last writing.
	writeDelay = time.Second
	writePause = 10 * time.Second
	// A file is written again after an eighth of max_age, and within these limits, as its resources are
	// current while their server is connected.
	minRefresh, maxRefresh = writePause, time.Hour
)

// diskWriter keeps the resources in use on disk (resource_cache of the bootstrap), writing behind. It writes
// views: a view has all resources in use at one moment, and no others. A view takes the place of the last one only if it is
// whole, that is, if no resource that it leads to is missing:
//
//	0.0 s  the file has cluster a, and the endpoints "one" that a leads to
//	5.0 s  a new version of a leads to the endpoints "two", which the client asks for
//	5.1 s  the server is lost. The client goes on with "one", and the file stays as it is: a client that
//	       started from the new version of a would have no endpoints
//
// Resources that servers refuse are taken out of the file meanwhile. A view that is not whole replaces a view that is to be
// written again because of its age, if a server is connected: resources that are missing are better than a file that expires.
//
// What the diskWriter has read from disk is in disklevel.go. A nil diskWriter does nothing. file belongs to the diskWriter's
// goroutine; the fields that change are guarded by XDSClient.mu.
type diskWriter struct {
	client *XDSClient
	file   *diskcache.Cache
	// lastError is the last error of writing that was logged.
	lastError string
	wake      transport.Signal

	levels map[authorityKey]*diskLevel
	// loading says that the file is being read.
	loading bool
	// queue has the entries that are to be restored, in order. They have no payload, and watchers hear of no error.
	queue []*resource

	// onDisk has the names in the file, and in the file that is being written.
	onDisk map[storedName]struct{}
	// left has the resources whose watches ended since a watch began, or a resource came, or a view was written: perhaps the
	// client is being closed, which ends one watch after the other. When the client is closed, the rest is added.
	left *view
	// refusals has the keys of the resources that servers have refused since the last writing.
	refusals map[diskcache.Key]struct{}
	// unwritten says that a resource has changed since the last writing of a view, and failed that the last writing
	// failed.
	unwritten, failed bool
	// The next writing is at due, and not before rest because of new versions. At stale the file is written again as
	// it is old. The last writing ended at wrote.
	due, rest, stale, wrote time.Time
}

// view is the content that a file is to have. Of a resource that targets have in versions of their own it has the latest.
type view struct {
	records map[diskcache.Key]diskcache.Record
	// names has, once the view is complete, the names of the resources that are not refused.
	names map[storedName]struct{}
	// unanswered says that a watch has had no answer yet, and current that a resource is current.
	unanswered, current bool
}

// newDiskWriter returns the diskWriter of a client, or nil if its bootstrap has no resource_cache.
func newDiskWriter(c *XDSClient) *diskWriter {
	if c.config.ResourceCache.Directory == "" {
		return nil
	}
	k := &diskWriter{
		client: c, file: cacheOf(c.config), wake: transport.NewSignal(),
		loading: true, refusals: make(map[diskcache.Key]struct{}),
	}
	k.levels = newDiskLevels(k)
	return k
}

// cacheOf returns the files of the process for a bootstrap.
func cacheOf(cfg *bootstrap.Config) *diskcache.Cache {
	// Settings that do not change what servers send do not make a file foreign: its place, max_age,
	// dns_fallback.
	identity := *cfg
	identity.ResourceCache.Directory, identity.DNSFallback = "", ""
	// Another program with the same bootstrap uses other resources. There are no arguments in some programs in C that link Go.
	path := ""
	if len(os.Args) > 0 {
		path = os.Args[0]
	}
	program := sha256.Sum256([]byte(identity.WithNode(identity.Node).Fingerprint() + " " + filepath.Base(path)))
	return diskcache.New(cfg.ResourceCache.Directory, hex.EncodeToString(program[:]), cfg.ResourceCache.MaxAge)
}

// run reads the file, and then writes and restores until the context ends.
func (k *diskWriter) run(ctx context.Context) {
	k.load()
	for {
		for k.restoreNext() {
		}
		select {
		case <-k.wake:
		case <-time.After(k.untilDue()):
			if k.untilDue() <= 0 {
				k.write()
			}
		case <-ctx.Done():
			k.write()
			return
		}
	}
}

func (k *diskWriter) refresh() time.Duration {
	return min(max(k.client.config.ResourceCache.MaxAge/8, minRefresh), maxRefresh)
}

func (k *diskWriter) untilDue() time.Duration {
	k.client.mu.Lock()
	defer k.client.mu.Unlock()
	if k.due.IsZero() {
		k.due = k.stale
	}
	return time.Until(k.due)
}

// schedule has the file written at a time, or before.
func (k *diskWriter) schedule(at time.Time) {
	k.unwritten = true
	if k.due.IsZero() || at.Before(k.due) {
		k.due = at
		k.wake.Give()
	}
}

// changed notes that a version is in use from now on.
func (k *diskWriter) changed(r *resource, taken stamp) {
	if k == nil {
		return
	}
	k.left, r.authority.disk.changed = nil, time.Now()
	switch {
	case taken.volatile: // an older version must not be kept either
		k.takeOut(r)
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
func (k *diskWriter) refused(r *resource, err *Error) {
	if k != nil && err.refusal() && r.watchedEntry().watched() {
		k.takeOut(r)
	}
}

// refusal reports whether an error says that the versions before it are not to be used by a client
// that starts: the server does not have the resource, or not for this client, or has one that is
// invalid. Other errors are transient, and clients "MUST continue to use previously cached versions"
// (xRFC TP3, "Protocol Behavior").
func (e *Error) refusal() bool { return e.Kind == KindInvalid || e.final() }

// takeOut has a resource taken out of the file, if that has it or another variant of it.
func (k *diskWriter) takeOut(r *resource) {
	key := storedKey(r)
	if _, kept := k.onDisk[nameOf(key)]; kept {
		k.refusals[key], k.left = struct{}{}, nil
		k.schedule(k.wrote.Add(writeDelay))
	}
}

func nameOf(key diskcache.Key) storedName { return storedName{key.TypeURL, key.Name} }

// enters notes that a resource is about to be watched that was not watched. So the client is not being closed.
func (k *diskWriter) enters() {
	if k != nil {
		k.left = nil
	}
}

// leaves notes that a resource is about to be no longer watched. While nothing can be written, nothing is
// remembered.
func (k *diskWriter) leaves(r *resource) {
	if k == nil || !k.unwritten || k.failed {
		return
	}
	if k.left == nil {
		k.left = newView()
	}
	now := time.Now()
	k.left.include(r, now)
	for _, m := range r.members {
		k.left.include(m, now)
	}
}

// collect remembers the resources in use for the last writing of a client that is about to be closed.
func (k *diskWriter) collect() {
	if k == nil || !k.unwritten || k.client.ctx.Err() != nil {
		return
	}
	if k.left == nil {
		k.left = newView()
	}
	k.includeAll(k.left)
}

func newView() *view { return &view{records: make(map[diskcache.Key]diskcache.Record)} }

// includeAll adds the resources in use to a view.
func (k *diskWriter) includeAll(v *view) {
	now := time.Now()
	for r := range k.client.entries() {
		v.include(r, now)
	}
}

// viewOfFile returns the resources that a start would find, without those that servers refused.
func (k *diskWriter) viewOfFile(refusals map[diskcache.Key]struct{}) *view {
	v, now := newView(), time.Now()
	records, _, _ := k.file.Load(now) // a file that cannot be read is replaced
	for _, r := range records {
		v.records[r.Key] = r
	}
	for key := range refusals {
		v.records[key] = diskcache.Record{Key: key, Time: now, Refused: true}
	}
	v.complete()
	return v
}

// include adds a resource to a view.
func (v *view) include(r *resource, now time.Time) {
	e, kept := entryOf(r, now)
	if !kept {
		v.unanswered = v.unanswered || r.isAwaited()
		return
	}
	if other, ok := v.records[e.Key]; !ok || other.Time.Before(e.Time) {
		v.records[e.Key] = e
	}
	v.current = v.current || e.Time.Equal(now)
}

// complete leaves resources out that are refused, unless another variant might be taken for them.
func (v *view) complete() {
	v.names = make(map[storedName]struct{})
	for key, e := range v.records {
		if !e.Refused {
			v.names[nameOf(key)] = struct{}{}
		}
	}
	maps.DeleteFunc(v.records, func(key diskcache.Key, e diskcache.Record) bool {
		_, variants := v.names[nameOf(key)]
		return e.Refused && !variants
	})
}

// entryOf returns the record of a resource that is written, or that the resource is refused. kept is false if there is
// neither. A resource that was last sent under a TTL or must not be cached is not kept, and neither is an older version.
func entryOf(r *resource, now time.Time) (e diskcache.Record, kept bool) {
	e.Key, e.Server, e.Time = storedKey(r), r.authority.active().server.URI, r.taken.time()
	switch {
	case r.err != nil && r.err.refusal():
		e.Refused, e.Time = true, r.err.Time()
	case r.taken.volatile:
		e.Refused = true
	case r.payload == nil:
		return e, false
	case !r.isCollection():
		e.Server = r.payload.server.URI
		e.Encode = encoder(r.key, r.payload, r.taken)
		if s, ok := r.payload.value.(secured); ok {
			e.Secured = s.Secured()
		}
		e.Enveloped = r.payload.enveloped
	}
	if r.authority.active().link.Connected() && r.state() == StateACKed {
		e.Time = now
	}
	return e, true
}

// isAwaited reports whether a server may still send a resource of which there is no version. The last version from
// its authority may lead to the resource, unless it came after the error: the servers have gone on without it.
func (r *resource) isAwaited() bool {
	err, changed := r.currentError(), r.authority.disk.changed
	return err == nil || !changed.IsZero() && !err.Time().Before(changed)
}

// encoder returns the function that encodes a version of a resource for the file.
func encoder(key resourceKey, p *payload, taken stamp) func(b []byte) []byte {
	return func(b []byte) []byte {
		if p.enveloped {
			return append(b, p.raw...)
		}
		w := &discoverypb.Resource{Name: key.name, Version: taken.version, Resource: p.resource(key.typ)}
		b, _ = proto.MarshalOptions{}.MarshalAppend(b, w) // all text is UTF-8
		return append(b, taken.parameters.Key()...)
	}
}

// storedKey is the key of an entry in the file.
func storedKey(r *resource) diskcache.Key {
	if whole := r.memberOf; whole != nil {
		return diskcache.Key{TypeURL: r.key.typ.TypeURL, Name: whole.key.name, Constraints: whole.key.variant, Member: r.key.name, Parameters: r.key.variant}
	}
	return diskcache.Key{TypeURL: r.key.typ.TypeURL, Name: r.key.name, Constraints: r.key.variant}
}

// secured is a resource that may ask for security of connections.
type secured interface{ Secured() bool }

// takeView returns the view that is to be written, or nil if the file keeps its own for now; and what is refused,
// which the file must lose in any case.
func (k *diskWriter) takeView() (v *view, refusals map[diskcache.Key]struct{}) {
	k.client.mu.Lock()
	defer k.client.mu.Unlock()
	v, k.left = k.left, nil
	if k.client.ctx.Err() == nil {
		v = newView()
		k.includeAll(v)
	}
	if v == nil { // nothing was unwritten when the client was closed
		return nil, nil
	}
	v.complete()
	refusals, k.refusals = k.refusals, make(map[diskcache.Key]struct{})
	now := time.Now()
	if v.unanswered && len(k.onDisk) > 0 && (!v.current || now.Before(k.stale)) {
		k.due = now.Add(writePause)
		return nil, refusals
	}
	asCurrent := !k.unwritten && !v.current
	k.unwritten, k.due, k.stale = false, time.Time{}, now.Add(k.refresh())
	if len(refusals) == 0 && (len(v.records) == 0 || asCurrent) { // the file has more, or is as current
		return nil, nil
	}
	maps.Copy(k.onDisk, v.names)
	return v, refusals
}

// write writes the resources in use.
func (k *diskWriter) write() {
	v, refusals := k.takeView()
	if v == nil && len(refusals) == 0 {
		return
	}
	c := k.client
	began := time.Now()
	var omitted int
	var err error
	if c.ctx.Err() == nil { // who closes a client may remove the directory
		err = k.file.MakeDir()
	}
	if v == nil {
		v = k.viewOfFile(refusals)
	}
	if err == nil {
		omitted, err = k.file.Write(slices.Collect(maps.Values(v.records)), len(refusals) > 0, began)
	}
	c.mu.Lock()
	defer c.unlock()
	k.wrote = time.Now()
	k.rest = k.wrote.Add(max(writePause, 100*k.wrote.Sub(began)))
	if k.failed = err != nil; k.failed {
		k.schedule(k.rest)
	}
	switch {
	case err == nil && omitted > 0:
		k.onDisk = v.names
		k.complain("it is full, and %d resources were left out", omitted)
	case err == nil:
		k.onDisk, k.lastError = v.names, ""
	case errors.Is(err, diskcache.ErrRemoved):
		k.onDisk = make(map[storedName]struct{})
		k.complain("it cannot be written: %v", err)
	default:
		maps.Copy(k.refusals, refusals)
		k.complain("it cannot be written, and a start without a control plane would use what is there: %v", err)
	}
}

// complain logs a problem of the file unless it was the last to be logged.
func (k *diskWriter) complain(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); text != k.lastError {
		k.lastError = text
		k.client.warningf("xDS resource cache %s: %s", k.file.Path(), text)
	}
}

// answered notes that a server has sent a response. The resources on disk of the server's authorities are not used from now
// on, unless a relay sent the response for want of an answer of its own servers.
func (k *diskWriter) answered(server *bootstrap.Server, resp *wire.Response) {
	if k == nil {
		return
	}
	if tellsOfNoAnswer(resp) {
		return
	}
	for _, l := range k.levels {
		if !l.open() || !slices.ContainsFunc(l.servers, func(s *bootstrap.Server) bool { return s.Key() == server.Key() }) {
			continue
		}
		if l.state == diskUsed {
			k.client.infof("xDS management server %s answers: its resources of %s replace those from disk", server, l.key)
		}
		l.state, l.records = diskClosed, nil
	}
}
