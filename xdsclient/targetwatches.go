package xdsclient

import "github.com/dynxds/dynxds/xdsclient/dynparam"

// targetWatches are the watches of one target in one authority. They follow the server of their level;
// see authority. There is a value while there is a watch. Guarded by XDSClient.mu.
type targetWatches struct {
	authority *authority
	target    string
	level     *level
	// watches are in no order.
	watches []*watch
}

// watch adds a watcher.
func (p *targetWatches) watch(key resourceKey, constraints dynparam.Constraints, w *watch) {
	w.ofTarget, w.index = p, len(p.watches)
	p.watches = append(p.watches, w)
	for _, above := range p.authority.levels[:p.level.index] {
		r := above.entryToWatch(key, constraints, nil)
		r.watches = append(r.watches, w)
		r.standBy()
	}
	r := p.level.entryToWatch(key, constraints, p.versionAbove(key))
	r.addWatch(w)
	// While all servers that were tried are unreachable, a cached resource changes nothing.
	if l := p.level; !l.lost && l.channel.link.Unreachable() && (l.last() || !r.cached()) {
		p.reconsider()
	}
}

// versionAbove returns the nearest entry above that has a version of a resource, if the server
// that the target follows is unreachable, or nil.
func (p *targetWatches) versionAbove(key resourceKey) *resource {
	if ch := p.level.channel; ch == nil || !ch.link.Unreachable() {
		return nil
	}
	for i := p.level.index - 1; i >= 0; i-- {
		if r := p.authority.levels[i].resources[key]; r != nil && r.payload != nil {
			return r
		}
	}
	return nil
}

// unwatch removes a watcher.
func (p *targetWatches) unwatch(w *watch) {
	last := len(p.watches) - 1
	p.watches[w.index] = p.watches[last]
	p.watches[w.index].index = w.index
	p.watches[last] = nil
	if p.watches = p.watches[:last]; last == 0 {
		delete(p.authority.byTarget, p.target)
	}
	key := w.resource.key
	for _, l := range p.authority.levels[:p.level.index+1] {
		l.removeWatch(l.resources[key], w)
	}
}

// reconsider moves the target on after its server became unreachable, or it watches something
// that is not cached.
func (p *targetWatches) reconsider() {
	for p.level.channel.link.Unreachable() {
		for _, above := range p.authority.levels[:p.level.index] {
			if above.channel.link.Healthy() {
				p.moveUp(above, nil)
				return
			}
		}
		if p.level.last() {
			if !p.level.lost && !p.authority.client.diskWriter.isLoading() {
				p.level.reportLoss()
			}
			return
		}
		if !p.missesSomething() {
			return
		}
		p.moveDown()
	}
}

// missesSomething reports whether something that is watched is not cached.
func (p *targetWatches) missesSomething() bool {
	for _, w := range p.watches {
		if !w.resource.cached() {
			return true
		}
	}
	return false
}

// moveDown has the target follow the next server.
func (p *targetWatches) moveDown() {
	from, to := p.level, p.authority.levels[p.level.index+1]
	p.level = to
	for _, ts := range from.channel.types { // the types in the order of their dependencies
		for _, w := range p.watches {
			if old := w.resource; old.key.typ == ts.typ {
				r := to.entryToWatch(old.key, old.constraints, old)
				old.standBy()
				r.watches = append(r.watches, w)
				w.resource = r
				w.queueDifferences(old, r, nil)
			}
		}
	}
	p.authority.client.warningf("xDS management server %s is unreachable and resources of %s%s are missing: falling back to %s",
		from.server, p.authority, p.forTarget(), to.server)
}

// moveUp has the target follow a server above, and unsubscribes from the servers below it. d is the
// response that is being worked on, or nil.
func (p *targetWatches) moveUp(to *level, d *delivery) {
	from := p.level
	p.level = to
	p.authority.client.infof("xDS management server %s takes over %s%s from %s", to.server, p.authority, p.forTarget(), from.server)
	below := p.authority.levels[to.index+1 : from.index+1]
	for _, w := range p.watches {
		old := w.resource
		r := to.resources[old.key]
		r.inheritFrom(old, d)
		to.channel.follow(r)
		w.queueDifferences(old, r, d)
		for _, l := range below {
			l.removeWatch(l.resources[old.key], w)
		}
		w.resource = r
		r.standby--
	}
}

// forTarget names the target in the log.
func (p *targetWatches) forTarget() string {
	if p.target == "" {
		return ""
	}
	return " for " + p.target
}

// endStandby has the targets that stand by at the resource follow its server, as its response
// d has something of use to them.
func (r *resource) endStandby(d *delivery) {
	if r.standby == 0 {
		return
	}
	for _, w := range r.watches {
		if w.resource != r {
			w.ofTarget.moveUp(r.level, d)
		}
	}
}

// queueDifferences queues the differences for a watcher that moves from one entry to another.
func (w *watch) queueDifferences(old, current *resource, d *delivery) {
	for key, m := range current.asCollection.entries() {
		w.queueDifference(old.asCollection.entries()[key], m, d)
	}
	for key, m := range old.asCollection.entries() {
		if current.asCollection.entries()[key] == nil {
			w.queueChange(m, current.level.channel.fault(KindDoesNotExist, m, errLeft), d)
		}
	}
	w.queueDifference(old, current, d)
	w.ofTarget.authority.client.dispatcher.enqueue(w)
}

// queueDifference does the same for one resource or member. old may be nil.
func (w *watch) queueDifference(old, current *resource, d *delivery) {
	if old == nil || !current.payload.same(old.payload) {
		current.queueState(w, d)
		return
	}
	oldErr, newErr := old.currentError(), current.currentError()
	switch {
	case oldErr == nil && newErr == nil || newErr.same(oldErr):
	case newErr == nil && current.payload == nil: // nothing is known
	case newErr == nil:
		w.queueChange(current, nil, d)
	case current.payload == nil:
		w.queueChange(current, newErr, d)
	default:
		w.queueAmbientError(current, newErr, d)
	}
}
