package xdsclient

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dynxds/dynxds/internal/changes"
	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
	"github.com/dynxds/dynxds/xdsclient/internal/diskcache"
)

// The file of a resource_cache (bootstrap) is the last level of each authority, below its servers. An authority falls to it
//
//   - if no server of the authority can be reached; fallback to another server comes first;
//   - if the server is a relay, and says that its own servers are unreachable or silent;
//   - if no server has answered after the time that a server has to send a resource.
//
// From the first response of a server of the authority on, whatever is in the response but such errors of a relay, no resource comes
// from disk any more. A resource from disk that is in use by then stays until the server has answered for the resource; then
// gRFC A88 applies, as to a version that a server sent. It does not count as cached where the question is whether to fall back.

// diskLevel is the file as the last level of an authority, for all targets. A nil one is never used. Guarded by XDSClient.mu.
type diskLevel struct {
	writer  *diskWriter
	key     authorityKey
	servers []*bootstrap.Server
	state   diskState
	// records is what the file has of the authority.
	records map[storedName][]*diskcache.Record
	// changed is when a server last sent a version of a resource.
	changed time.Time
}

type storedName struct{ typeURL, name string }

// diskState is how far an authority has fallen.
type diskState int

const (
	// diskUnasked: no server has been asked for a resource of the authority.
	diskUnasked diskState = iota
	// diskAwaiting: the servers have the time that a server has to send a resource.
	diskAwaiting
	// diskReached: no server can be reached, or all are silent.
	diskReached
	// diskUsed: a resource from disk is in use.
	diskUsed
	// diskClosed: a server has answered.
	diskClosed
)

// newDiskLevels returns the levels of all authorities of a bootstrap.
func newDiskLevels(k *diskWriter) map[authorityKey]*diskLevel {
	levels := make(map[authorityKey]*diskLevel)
	keys := []authorityKey{{}}
	for name := range k.client.config.Authorities {
		keys = append(keys, authorityKey{newStyle: true, name: name})
	}
	for _, key := range keys {
		if servers, err := serversFor(k.client.config, key); err == nil {
			levels[key] = &diskLevel{writer: k, key: key, servers: servers}
		}
	}
	return levels
}

// open reports whether no server of the authority has answered.
func (l *diskLevel) open() bool { return l != nil && l.state != diskClosed }

// await gives the servers, which are about to be asked for a first resource, their time. If another authority has already waited for
// the same server, that time is over: DPDS may have an authority of its own, and is asked first.
func (l *diskLevel) await() {
	if l.state == diskUnasked {
		l.state = diskAwaiting
		c := l.writer.client
		timer := time.AfterFunc(c.options.ResourceTimeout, l.endWait)
		context.AfterFunc(c.ctx, func() { timer.Stop() })
	}
}

// endWait has all authorities with the silent server fall to the file.
func (l *diskLevel) endWait() {
	c := l.writer.client
	c.mu.Lock()
	defer c.unlock()
	if c.ctx.Err() != nil || l.state != diskAwaiting {
		return
	}
	l.state = diskUnasked
	for _, a := range c.authorities {
		if a.disk == l {
			l.reach()
		}
	}
	if !l.reached() { // nobody waits any more
		return
	}
	for _, other := range l.writer.levels {
		if other.servers[0].Key() == l.servers[0].Key() {
			other.reach()
		}
	}
	if k := l.writer; k.loading { // the file is not waited for
		k.loading = false
		for _, r := range k.queue {
			r.tellNoAnswer()
		}
	}
	c.restoreAll()
}

// reach notes that the authority has fallen to the file.
func (l *diskLevel) reach() {
	if l != nil {
		l.state = max(l.state, diskReached)
	}
}

// reached reports whether resources that are watched from now on come from disk.
func (l *diskLevel) reached() bool {
	return l != nil && (l.state == diskReached || l.state == diskUsed)
}

// restoreAll has all watched resources of authorities that have fallen to the file use the versions on disk. For a resource that has
// none the resource timer ends too, though it may be longer (gRFC A88): DPDS is never on disk, and all resources wait for its answer.
func (c *XDSClient) restoreAll() {
	for _, a := range c.authorities {
		for _, r := range a.resources {
			if !a.disk.reached() || !r.watched() || a.disk.restore(r) || r.payload != nil {
				continue
			}
			if s := a.active().subscriptionTo(r); s != nil && s.State.Pending() {
				s.expire(c.options.ResourceTimeout)
			}
		}
	}
}

// restore has an entry use the version on disk, unless the entry has a version or the server has answered for
// it. It reports whether there may be a version on disk. That is read and decoded first: until then watchers hear
// nothing of the entry.
func (l *diskLevel) restore(r *resource) bool {
	if !l.mayRestore(r) {
		return false
	}
	k := l.writer
	if !k.loading && len(l.find(r)) == 0 {
		return false
	}
	if !r.restoring {
		k.queue, r.restoring = append(k.queue, r), true
		k.wake.Give()
	}
	return true
}

// mayRestore reports whether an entry has no version, and no server has answered for it.
func (l *diskLevel) mayRestore(r *resource) bool {
	return l.open() && r.memberOf == nil && r.payload == nil && (r.err == nil || r.err.Kind.tellsOfNoAnswer())
}

// load reads the file.
func (k *diskWriter) load() {
	dirErr := k.file.MakeDir()
	records, old, err := k.file.Load(time.Now())
	c := k.client
	c.mu.Lock()
	defer c.unlock()
	if dirErr != nil {
		k.complain("its directory cannot be made: %v", dirErr)
	}
	if err != nil {
		c.warningf("xDS %v; it is ignored", err)
	}
	if old > 0 {
		c.warningf("xDS resource cache %s: %d resources in it are too old and ignored", k.file.Path(), old)
	}
	k.onDisk, k.stale = make(map[storedName]struct{}), time.Now().Add(k.refresh())
	for _, l := range k.levels {
		l.records = make(map[storedName][]*diskcache.Record)
	}
	for i := range records {
		r := &records[i]
		var key authorityKey
		if n, err := xdsname.Parse(r.Name); err == nil {
			key = authorityOf(n)
		}
		name := nameOf(r.Key)
		if l := k.levels[key]; l.open() {
			l.records[name] = append(l.records[name], r)
		}
		k.onDisk[name] = struct{}{}
	}
	k.loading = false
	c.restoreAll()
}

// find returns the records of an entry: of a resource one record; of a collection its own record and those of its members.
// Constraints for which servers said nothing last time, as those of a client that starts without DPDS, choose among
// the variants of other constraints.
func (l *diskLevel) find(r *resource) []*diskcache.Record {
	all := l.records[storedName{r.key.typ.TypeURL, r.key.name}]
	if found, answered := recordsFor(r.key.variant, all); answered {
		return found
	}
	return chosenOf(r.constraints, all)
}

// recordsFor returns the records of the file for constraints; none if the server refused the resource, or
// the collection as a whole, for them. answered says whether the server has said anything for them.
func recordsFor(constraints string, all []*diskcache.Record) (found []*diskcache.Record, answered bool) {
	for _, rec := range all {
		if rec.Constraints != constraints {
			continue
		}
		if rec.Member == "" {
			answered = true
			if rec.Refused {
				return nil, true
			}
		}
		if !rec.Refused {
			found = append(found, rec)
		}
	}
	return found, answered
}

// chosenOf returns the variant that constraints choose among the variants that were current last. It returns none
// if servers refused the name later, or if it names a collection.
func chosenOf(constraints dynparam.Constraints, all []*diskcache.Record) []*diskcache.Record {
	var parameters []dynparam.Parameters
	var latest []*diskcache.Record
	var refused time.Time
	for _, rec := range all { // the newest ones first
		if rec.Member != "" || isCollection(rec.Name) || len(latest) > 0 && rec.Time.Before(latest[0].Time) {
			continue
		}
		if rec.Refused {
			refused = later(refused, rec.Time)
			continue
		}
		res := wire.ParseWrapper(rec.Resource, rec.TypeURL)
		p, err := dynwire.UnmarshalParameters(res.Parameters)
		if err == nil && res.Err == nil && constraints.Match(p) {
			parameters, latest = append(parameters, p), append(latest, rec)
		}
	}
	if len(latest) == 0 || refused.After(latest[0].Time) {
		return nil
	}
	return latest[constraints.Choose(parameters).Index:][:1]
}

// restored is a record that was read.
type restored struct {
	record  *diskcache.Record
	decoder resourceDecoder
	item    item
}

// restoreNext restores the first entry of the queue. It reports false if the queue is empty.
func (k *diskWriter) restoreNext() bool {
	c := k.client
	c.mu.Lock()
	if len(k.queue) == 0 {
		k.queue = nil
		c.mu.Unlock()
		return false
	}
	r := k.queue[0]
	k.queue = k.queue[1:]
	var records []*diskcache.Record
	if r.watchedHere() {
		records = r.authority.disk.find(r)
	}
	all := make([]restored, 0, len(records))
	for _, rec := range records {
		ch, server := r.authority.sender(rec.Server)
		all = append(all, restored{record: rec, decoder: resourceDecoder{types: ch.typeState(r.key.typ), server: server}})
	}
	c.mu.Unlock()
	for i := range all {
		all[i].read(r.isCollection())
	}
	c.mu.Lock()
	defer c.unlock()
	r.restoring = false
	if !r.watchedHere() {
		return true
	}
	if l := r.authority.disk; l.mayRestore(r) {
		l.apply(r, all)
	}
	r.tellNoAnswer()
	if r.payload == nil && r.err == nil {
		if s := r.authority.active().subscriptionTo(r); s != nil && s.State == ads.Silent { // its timer has fired meanwhile
			s.expire(c.options.ResourceTimeout)
		}
	}
	return true
}

// tellNoAnswer reports an error that watchers did not hear of while the resource was read from disk.
func (r *resource) tellNoAnswer() {
	if err := r.currentError(); err != nil && err.Kind.tellsOfNoAnswer() {
		r.reportError(err, nil)
	}
}

// watchedHere reports whether the entry is in the cache and watched.
func (r *resource) watchedHere() bool { return r.authority.resources[r.key] == r && r.watched() }

// sender returns the channel to a server of the authority, and the server. Without a channel they are that to the server that the authority
// follows, and one with the features of the sender, or none, and no Key: what is bound to the channel is decoded again when the sender sends it.
func (a *authority) sender(uri string) (*managementServer, *bootstrap.Server) {
	for _, ch := range a.channels {
		if ch.server.URI == uri {
			return ch, ch.server
		}
	}
	server := &bootstrap.Server{Service: bootstrap.Service{URI: uri}}
	if i := slices.IndexFunc(a.servers, func(s *bootstrap.Server) bool { return s.URI == uri }); i >= 0 {
		server.Features = a.servers[i].Features
	}
	return a.active(), server
}

// read decodes the resource of the record, unless it is that of a collection as a whole. The lock is not held.
func (x *restored) read(ofCollection bool) {
	if ofCollection && x.record.Member == "" {
		return
	}
	it := &x.item
	it.Resource = wire.ParseWrapper(x.record.Resource, x.record.TypeURL)
	if it.enveloped = x.record.Enveloped; !it.enveloped {
		it.Name = x.decoder.types.typ.NameOf(it.Value) // a resource that was watched by an alias calls itself otherwise
	}
	var err error
	if it.parameters, err = dynwire.UnmarshalParameters(it.Parameters); err != nil && it.Err == nil {
		it.Err = err
	}
	if it.Err == nil {
		x.decoder.decode(it)
	}
}

// apply has an entry use the records that were read. Records that cannot be decoded are left out.
func (l *diskLevel) apply(r *resource, all []restored) {
	for i := range all {
		rec, it := all[i].record, &all[i].item
		of, p := r, it.payload
		switch {
		case it.Err != nil:
			l.drop(r, rec)
			l.writer.client.warningf("xDS %s %q in %s is ignored: %v", r.key.typ.Name, r.key.name, l.writer.file.Path(), it.Err)
			continue
		case rec.Member != "":
			key := resourceKey{r.key.typ, rec.Member, it.parameters.Key()}
			of = r.newMember(key, it.parameters)
			r.members[key] = of
		case r.isCollection():
			p = &payload{server: all[i].decoder.server}
		}
		l.use(of, p, stamp{version: string(it.Version), at: rec.Time.UnixNano(), parameters: it.parameters, stored: true})
	}
}

// drop forgets a record of an entry.
func (l *diskLevel) drop(r *resource, rec *diskcache.Record) {
	name := storedName{r.key.typ.TypeURL, r.key.name}
	l.records[name] = slices.DeleteFunc(slices.Clone(l.records[name]), func(x *diskcache.Record) bool { return x == rec })
}

// use has an entry use a version from disk.
func (l *diskLevel) use(r *resource, p *payload, taken stamp) {
	r.payload, r.taken = p, taken
	age := taken.age()
	if l.state != diskUsed {
		l.state = diskUsed
		l.writer.client.warningf("xDS resources of %s are from disk, %s: no management server has answered (%s)", l.key, age, l.writer.file.Path())
	}
	if !r.isCollection() {
		change := r.change(changes.Accepted, taken)
		change.Detail = "from disk, " + age
		changes.Add(change)
	}
	r.reportChange(nil, nil)
}

// age says how old a resource from disk is.
func (s stamp) age() string {
	return fmt.Sprintf("%d minutes old", max(0, time.Since(s.time()))/time.Minute)
}
