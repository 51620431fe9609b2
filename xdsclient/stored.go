package xdsclient

import (
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

// A resource on disk stands in for a resource that no server has answered for (resource_cache of the
// bootstrap)
//
//   - if no server of the authority can be reached; fallback to another server comes first;
//   - if the server is a relay, and says that its own servers are unreachable or silent;
//   - if no server has answered after the time that a server has to send a resource.
//
// From the first response of a server of the authority on, whatever is in the response but such errors of a relay, no resource comes
// from disk any more. A resource from disk that is in use by then stays until the server has answered for the resource; then
// gRFC A88 applies, as to a version that a server sent. It does not count as cached where the question is whether to fall back.

// storedResources are the resources that were read from disk. Guarded by XDSClient.mu.
type storedResources struct {
	// loading says that the file is being read. Until then no loss of servers is reported.
	loading bool
	// path is the file that was read.
	path   string
	stored map[authorityKey]map[storedName][]*diskcache.Record
	// answers are the servers that have answered, by bootstrap.Server.Key.
	answers map[string]struct{}
	// queue has the entries that are to be restored, in order, and queued has them as a set. They have no
	// payload and no error.
	queue  []*resource
	queued map[*resource]struct{}
}

type storedName struct{ typeURL, name string }

func newStoredResources() storedResources {
	return storedResources{
		loading: true,
		stored:  make(map[authorityKey]map[storedName][]*diskcache.Record),
		answers: make(map[string]struct{}),
		queued:  make(map[*resource]struct{}),
	}
}

// load reads the file.
func (k *diskWriter) load() {
	dirErr := k.file.MakeDir()
	contents, faults := k.file.Load(time.Now())
	c := k.client
	c.mu.Lock()
	defer c.unlock()
	if dirErr != nil {
		k.complain("its directory cannot be made: %v", dirErr)
	}
	for _, err := range faults {
		c.warningf("xDS %v; it is ignored", err)
	}
	if contents.Old > 0 {
		c.warningf("xDS resource cache %s: %d resources in it are too old and ignored", contents.Path, contents.Old)
	}
	k.path, k.onDisk, k.stale = contents.Path, make(nameSet), time.Now().Add(k.refresh())
	for i := range contents.Records {
		r := &contents.Records[i]
		var key authorityKey
		if n, err := xdsname.Parse(r.Name); err == nil {
			key = authorityOf(n)
		}
		if k.stored[key] == nil {
			k.stored[key] = make(map[storedName][]*diskcache.Record)
		}
		name := storedName{r.TypeURL, r.Name}
		k.stored[key][name] = append(k.stored[key][name], r)
		k.onDisk[k.hash(&r.Key)] = struct{}{}
	}
	for _, a := range c.authorities {
		if !k.usable(a) {
			delete(k.stored, a.key.ofAll())
		}
	}
	k.endLoading()
	for _, a := range c.authorities {
		if a.waited || a.lost {
			a.useStored()
		}
	}
}

// endLoading reports losses of servers that were held back.
func (k *diskWriter) endLoading() {
	if !k.loading {
		return
	}
	k.loading = false
	for _, a := range k.client.authorities {
		a.reconsider()
	}
}

// isLoading reports whether the file is being read.
func (k *diskWriter) isLoading() bool { return k != nil && k.loading }

// usable reports whether no server of the authority has answered.
func (k *diskWriter) usable(a *authority) bool {
	return k != nil && !slices.ContainsFunc(a.servers, func(s *bootstrap.Server) bool {
		_, answered := k.answers[s.Key()]
		return answered
	})
}

// beginWait starts the time after which the authority uses the resources on disk. If another authority has already waited for the
// same server, that time is over: DPDS may have an authority of its own, and is asked first.
func (a *authority) beginWait() {
	c := a.client
	for _, other := range c.authorities {
		a.waited = a.waited || other.waited && other.servers[0].Key() == a.servers[0].Key()
	}
	if !a.waited && c.diskWriter.usable(a) {
		a.wait = time.AfterFunc(c.options.resourceTimeout, func() {
			c.mu.Lock()
			defer c.unlock()
			if c.ctx.Err() != nil || c.authorities[a.key] != a {
				return
			}
			a.waited = true
			c.diskWriter.endLoading()
			a.useStored()
		})
	}
}

// endWait ends that time when no resource of the authority is watched any more.
func (a *authority) endWait() {
	if a.wait != nil {
		a.wait.Stop()
	}
}

// useStored has all watched resources use the versions on disk. For a resource that has none the resource timer ends too, though it
// may be longer (gRFC A88): DPDS is never on disk, and all resources wait for its answer.
func (a *authority) useStored() {
	k := a.client.diskWriter
	if !k.usable(a) {
		return
	}
	for _, r := range a.resources {
		if !r.watched() || k.restore(r) || r.payload != nil {
			continue
		}
		if s := a.active().subscriptionTo(r); s != nil && s.State.Pending() {
			a.active().typeState(r.key.typ).expire(s, a.client.options.resourceTimeout)
		}
	}
}

// restore has an entry use the version on disk, unless the entry has a version or the server has answered for
// it. It reports whether there may be a version on disk. That is read and decoded first: until then watchers hear
// nothing of the entry.
func (k *diskWriter) restore(r *resource) bool {
	if k == nil {
		return false
	}
	if k.restores(r) {
		return true
	}
	if !k.mayRestore(r) || !k.loading && len(k.find(r)) == 0 {
		return false
	}
	k.queue, k.queued[r] = append(k.queue, r), struct{}{}
	k.notify()
	return true
}

// mayRestore reports whether an entry has no version, and no server has answered for it.
func (k *diskWriter) mayRestore(r *resource) bool {
	return r.payload == nil && (r.err == nil || r.err.Kind.tellsOfNoAnswer()) && k.usable(r.authority)
}

// restores reports whether the version on disk of an entry is being read.
func (k *diskWriter) restores(r *resource) bool {
	if k == nil {
		return false
	}
	_, queued := k.queued[r]
	return queued
}

// find returns the records of an entry: of a resource one record; of a collection its own record and those of its members.
// Constraints for which servers said nothing last time, as those of a client that starts without DPDS, choose among
// the variants of other constraints.
func (k *diskWriter) find(r *resource) []*diskcache.Record {
	all := k.stored[r.authority.key.ofAll()][storedName{r.key.typ.TypeURL, r.key.name}]
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
	for _, rec := range all {
		if rec.Member != "" || isCollection(rec.Name) {
			continue
		}
		if rec.Refused {
			refused = later(refused, rec.Time)
			continue
		}
		res := wire.ParseWrapper(rec.Resource, rec.TypeURL)
		p, err := dynwire.UnmarshalParameters(res.Parameters)
		if err != nil || res.Err != nil || !constraints.Match(p) || len(latest) > 0 && rec.Time.Before(latest[0].Time) {
			continue
		}
		if len(latest) > 0 && rec.Time.After(latest[0].Time) {
			parameters, latest = nil, nil
		}
		parameters, latest = append(parameters, p), append(latest, rec)
	}
	if len(latest) == 0 || refused.After(latest[0].Time) {
		return nil
	}
	return latest[constraints.Choose(parameters).Index:][:1]
}

// restored is a record that was read.
type restored struct {
	record *diskcache.Record
	item   item
	taken  stamp
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
		records = k.find(r)
	}
	all := make([]restored, 0, len(records))
	decoders := make([]resourceDecoder, 0, len(records))
	for _, rec := range records {
		ch := r.authority.channelTo(rec.Server)
		all, decoders = append(all, restored{record: rec}), append(decoders, resourceDecoder{ch: ch, types: ch.typeState(r.key.typ)})
	}
	c.mu.Unlock()
	for i := range all {
		if len(all[i].record.Resource) > 0 {
			all[i].read(&decoders[i])
		}
	}
	c.mu.Lock()
	defer c.unlock()
	delete(k.queued, r)
	if !r.watchedHere() {
		return true
	}
	held := r.err != nil && r.err.Kind.tellsOfNoAnswer()
	if k.mayRestore(r) {
		r.link = nil
		k.apply(r, all, decoders)
	}
	switch {
	case r.authority.lost && r.link == nil:
		r.authority.useOtherVariant(r)
		r.setLinkError(r.authority.unreachable(r, r.authority.failure()))
	case held:
		r.reportError(r.err, nil)
	}
	if ch := r.authority.active(); r.payload == nil && r.err == nil {
		if s := ch.subscriptionTo(r); s != nil && s.State == ads.Silent { // its timer has fired meanwhile
			ch.typeState(r.key.typ).expire(s, c.options.resourceTimeout)
		}
	}
	return true
}

// watchedHere reports whether the entry is in the cache and watched.
func (r *resource) watchedHere() bool { return r.authority.resources[r.key] == r && r.watched() }

// channelTo returns the channel to a server of the authority, or the channel to the one that it follows if the server has none.
func (a *authority) channelTo(uri string) *managementServer {
	for _, ch := range a.channels {
		if ch.server.URI == uri {
			return ch
		}
	}
	return a.active()
}

// read decodes the resource of the record. The lock is not held.
func (x *restored) read(d *resourceDecoder) {
	it := &x.item
	it.Resource = wire.ParseWrapper(x.record.Resource, x.record.TypeURL)
	if it.enveloped = x.record.Enveloped; !it.enveloped {
		it.Name = d.types.typ.NameOf(it.Value) // a resource that was watched by an alias calls itself otherwise
	}
	var err error
	if it.parameters, err = dynwire.UnmarshalParameters(it.Parameters); err != nil && it.Err == nil {
		it.Err = err
	}
	d.decode(it)
	x.taken = stamp{version: string(it.Version), at: x.record.Time.UnixNano(), parameters: it.parameters, stored: true}
}

// apply has an entry use the records that were read. Records that cannot be decoded are left out.
func (k *diskWriter) apply(r *resource, all []restored, decoders []resourceDecoder) {
	for i := range all {
		x := &all[i]
		switch rec := x.record; {
		case x.item.Err != nil:
			k.drop(r, rec)
			k.client.warningf("xDS %s %q in %s is ignored: %v", r.key.typ.Name, r.key.name, k.path, x.item.Err)
		case rec.Member != "":
			key := resourceKey{r.key.typ, rec.Member, x.item.parameters.Key()}
			m := r.newMember(key, x.item.parameters)
			r.members[key] = m
			k.use(m, x.item.payload, x.taken)
		case r.isCollection():
			k.use(r, &payload{server: decoders[i].ch.server}, stamp{at: rec.Time.UnixNano(), stored: true})
		case x.item.payload != nil:
			k.use(r, x.item.payload, x.taken)
		}
	}
}

// drop forgets a record of an entry.
func (k *diskWriter) drop(r *resource, rec *diskcache.Record) {
	records, name := k.stored[r.authority.key.ofAll()], storedName{r.key.typ.TypeURL, r.key.name}
	if all := records[name]; all != nil {
		records[name] = slices.DeleteFunc(slices.Clone(all), func(x *diskcache.Record) bool { return x == rec })
	}
}

// use has an entry use a version from disk.
func (k *diskWriter) use(r *resource, p *payload, taken stamp) {
	r.payload, r.taken = p, taken
	age := taken.age()
	if a := r.authority; !a.fromDisk {
		a.fromDisk = true
		k.client.warningf("xDS resources of %s are from disk, %s: no management server has answered (%s)", a, age, k.path)
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
