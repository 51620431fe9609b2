package xdsclient

import "github.com/dynxds/dynxds/xdsclient/dynparam"

// party is what one target watches of one authority. It follows the server of its level;
// see authority. It exists while it has a watch. Guarded by XDSClient.mu.
type party struct {
	authority *authority
	target    string
	level     *level
	// watches are in no order.
	watches []*watch
}

// watch adds a watcher.
func (p *party) watch(key resourceKey, constraints dynparam.Constraints, w *watch) {
	w.party, w.index = p, len(p.watches)
	p.watches = append(p.watches, w)
	for _, above := range p.authority.levels[:p.level.index] {
		r := above.want(key, constraints, nil)
		r.watches = append(r.watches, w)
		r.standBy()
	}
	r := p.level.want(key, constraints, p.cachedAbove(key))
	r.join(w)
	// While all servers that were tried are unreachable, what is cached changes nothing.
	if l := p.level; !l.lost && l.channel.link.Unreachable() && (l.last() || !r.cached()) {
		p.review()
	}
}

// cachedAbove returns the nearest entry above that has a version of a resource, or nil. It is
// of use only while the server that the party follows is unreachable.
func (p *party) cachedAbove(key resourceKey) *resource {
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
func (p *party) unwatch(w *watch) {
	last := len(p.watches) - 1
	p.watches[w.index] = p.watches[last]
	p.watches[w.index].index = w.index
	p.watches[last] = nil
	if p.watches = p.watches[:last]; last == 0 {
		delete(p.authority.parties, p.target)
	}
	key := w.resource.key
	for _, l := range p.authority.levels[:p.level.index+1] {
		l.leave(l.resources[key], w)
	}
}

// review moves the party on after its server became unreachable, or it watches something
// that is not cached.
func (p *party) review() {
	for p.level.channel.link.Unreachable() {
		for _, above := range p.authority.levels[:p.level.index] {
			if above.channel.link.Healthy() {
				p.rise(above, nil)
				return
			}
		}
		if p.level.last() {
			if !p.level.lost {
				p.level.lose()
			}
			return
		}
		if !p.lacks() {
			return
		}
		p.descend()
	}
}

// lacks reports whether something that is watched is not cached.
func (p *party) lacks() bool {
	for _, w := range p.watches {
		if !w.resource.cached() {
			return true
		}
	}
	return false
}

// descend has the party follow the next server.
func (p *party) descend() {
	from, to := p.level, p.authority.levels[p.level.index+1]
	p.level = to
	for _, ts := range from.channel.types { // the types in the order of their dependencies
		for _, w := range p.watches {
			if old := w.resource; old.key.typ == ts.typ {
				r := to.want(old.key, old.constraints, old)
				old.standBy()
				r.watches = append(r.watches, w)
				w.resource = r
				w.retell(old, r, nil)
			}
		}
	}
	p.authority.client.warningf("xDS management server %s is unreachable and resources of %s%s are missing: falling back to %s",
		from.server, p.authority, p.of(), to.server)
}

// rise has the party follow a server above, and leaves those below it. d is the response
// that is being worked on, or nil.
func (p *party) rise(to *level, d *delivery) {
	from := p.level
	p.level = to
	p.authority.client.infof("xDS management server %s takes over %s%s from %s", to.server, p.authority, p.of(), from.server)
	left := p.authority.levels[to.index+1 : from.index+1]
	for _, w := range p.watches {
		old := w.resource
		r := to.resources[old.key]
		r.inherit(old, d)
		to.channel.follow(r)
		w.retell(old, r, d)
		for _, l := range left {
			l.leave(l.resources[old.key], w)
		}
		w.resource = r
		r.standby--
	}
}

// of names the target in the log.
func (p *party) of() string {
	if p.target == "" {
		return ""
	}
	return " for " + p.target
}

// lift has the parties that stand by at the resource follow its server, which has said
// something of use to them. d is the response.
func (r *resource) lift(d *delivery) {
	if r.standby == 0 {
		return
	}
	for _, w := range r.watches {
		if w.resource != r {
			w.party.rise(r.level, d)
		}
	}
}

// retell tells the watcher, which hears of one entry now and heard of another before,
// what is different.
func (w *watch) retell(old, now *resource, d *delivery) {
	for key, m := range now.members {
		w.retellOne(old.members[key], m, d)
	}
	for key, m := range old.members {
		if now.members[key] == nil {
			w.tellChangeOf(m, now.level.channel.fault(KindDoesNotExist, m, errLeft), d)
		}
	}
	w.retellOne(old, now, d)
	w.party.authority.client.dispatcher.enqueue(w)
}

// retellOne does what retell does of one resource. old may be nil.
func (w *watch) retellOne(old, now *resource, d *delivery) {
	if old == nil || !now.payload.same(old.payload) {
		now.recount(w, d)
		return
	}
	was, is := old.standing(), now.standing()
	switch {
	case was == nil && is == nil || is.same(was):
	case is == nil && now.payload == nil: // nothing is known yet
	case is == nil:
		w.tellChangeOf(now, nil, d)
	case now.payload == nil:
		w.tellChangeOf(now, is, d)
	default:
		w.tellAmbientOf(now, is, d)
	}
}
