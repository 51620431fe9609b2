package publish

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/bootstrapfile"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// patience is Publisher.patience: many round trips.
const patience = time.Second

// prepare sets the constraints for the tags before and after an update, waits for DPDS clients to take
// them, and returns the number of those that have not.
func (p *Publisher) prepare(ctx context.Context, both tags) (late int) {
	changed := p.setTags(both)
	if !changed || p.opts.Authority == "" || p.opts.Await == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	return p.opts.Await(ctx, p.follows)
}

// setTags sets the tags of constraints and refreshes the streams. It reports whether the tags changed.
func (p *Publisher) setTags(t tags) (changed bool) {
	if maps.EqualFunc(*p.tags.Load(), t, slices.Equal) {
		return false
	}
	p.tags.Store(&t)
	if p.opts.Refresh != nil {
		p.opts.Refresh()
	}
	p.store.RefreshDPDS("", nil)
	return true
}

// follows reports whether a client subscribes with the constraints of DPDS, if it uses DPDS on this
// stream. It may have additional constraints of its own.
func (p *Publisher) follows(c controlplane.ClientStatus) bool {
	if !slices.ContainsFunc(c.Types, p.asksDPDS) {
		return true
	}
	constraints, err := p.dpds(c.Node)
	if err != nil {
		return true // the client gets the error in place of constraints
	}
	for _, t := range c.Types {
		want := constraints.For(t.TypeURL)
		for _, l := range t.Locators {
			if xdsname.HasAuthority(l.Name, p.opts.Authority) && !coversKeys(l.Constraints, want) {
				return false
			}
		}
	}
	return true
}

// asksDPDS reports whether the client subscribes to its constraints and has not rejected them.
func (p *Publisher) asksDPDS(t controlplane.TypeStatus) bool {
	return t.TypeURL == dynparam.MapTypeURL && t.Reply != controlplane.ReplyNACK &&
		slices.Contains(t.Names, bootstrapfile.DPDSName(p.opts.Authority))
}

// coversKeys reports whether constraints have all the keys of others.
func coversKeys(c, others dynparam.Constraints) bool {
	keys := c.ToProto().GetKeyConstraints()
	for key := range others.ToProto().GetKeyConstraints() {
		if keys[key] == nil {
			return false
		}
	}
	return true
}
