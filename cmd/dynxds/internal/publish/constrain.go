package publish

import (
	"context"
	"slices"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/bootstrapfile"
	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// patience is that of a Publisher: many round trips.
const patience = time.Second

// prepare makes constraints those about the tags before and after an update, and
// gives clients of DPDS the time to take them. It returns how many have not.
func (p *Publisher) prepare(ctx context.Context, both tags) (late int) {
	changed := p.setTags(both)
	if !changed || p.authority == "" || p.streams.Await == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	return p.streams.Await(ctx, p.follows)
}

// setTags makes constraints those about the tags, and has streams told if that may
// make a difference, which it returns.
func (p *Publisher) setTags(t tags) (changed bool) {
	if p.tags.Load().equal(t) {
		return false
	}
	p.tags.Store(&t)
	if p.streams.Refresh != nil {
		p.streams.Refresh()
	}
	p.store.RefreshDPDS("", nil)
	return true
}

// follows reports whether a client subscribes as DPDS says, as far as it asked for
// that on this stream. It may have more constraints, which are its own.
func (p *Publisher) follows(c controlplane.ClientStatus) bool {
	if !slices.ContainsFunc(c.Types, p.asksDPDS) {
		return true
	}
	constraints, err := p.dpds(c.Node)
	if err != nil {
		return true // the client is told the error, and can do no better
	}
	for _, t := range c.Types {
		want := constraints.For(t.TypeURL)
		for _, l := range t.Locators {
			if p.isOurs(l.Name) && !coversKeys(l.Constraints, want) {
				return false
			}
		}
	}
	return true
}

// asksDPDS reports whether the client wants its constraints, and takes them: one that
// rejects them would be waited for without success.
func (p *Publisher) asksDPDS(t controlplane.TypeStatus) bool {
	return t.TypeURL == dynparam.MapTypeURL && t.Reply != controlplane.ReplyNACK &&
		slices.Contains(t.Names, bootstrapfile.DPDSName(p.authority))
}

// isOurs reports whether a resource is one that DPDS is about.
func (p *Publisher) isOurs(name string) bool {
	return xdsname.HasAuthority(name, p.authority)
}

// coversKeys reports whether constraints are about all the keys that others are about.
func coversKeys(c, others dynparam.Constraints) bool {
	for key := range others.Keys() {
		if !slices.Contains(slices.Collect(c.Keys()), key) {
			return false
		}
	}
	return true
}
