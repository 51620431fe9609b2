package status

import (
	"context"
	"slices"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/mesh/explain"
)

// Survey fetches the status of a process, and surveys the channel of a target, or all that are not resolved by DNS if target is
// empty. Of a process that does not name its channels, each Listener is taken for one.
func Survey(ctx context.Context, p Process, target string) (*Report, []*explain.Explanation, error) {
	clients, err := p.fetch(ctx)
	if err != nil {
		return nil, nil, err
	}
	r := reportOf(clients)
	var surveys []*explain.Explanation
	survey := func(target, listener string) error {
		return withSource(p.Address, clients, target, func(s *explain.Source) error {
			found, err := explain.SurveySource(s, explain.Request{Target: target, Listener: listener})
			if err == nil {
				surveys = append(surveys, found)
			}
			return err
		})
	}
	if target != "" {
		return r, surveys, survey(target, "")
	}
	targets, listeners := r.channels()
	for _, target := range targets {
		_ = survey(target, "") // a channel that has not asked for its Listener is told by the state of channels
	}
	for _, listener := range listeners {
		if err := survey("", listener); err != nil {
			return nil, nil, err
		}
	}
	return r, surveys, nil
}

// channels returns the targets of the channels, and the Listeners of the clients that do not name theirs.
func (r *Report) channels() (targets, listeners []string) {
	for i := range r.Clients {
		c := &r.Clients[i]
		if c.State == nil {
			for j := range c.Resources {
				if c.Resources[j].Type == typeurl.ShortName(typeurl.Listener) {
					listeners = append(listeners, c.Resources[j].Name)
				}
			}
			continue
		}
		for j := range c.State.Channels {
			if x := &c.State.Channels[j]; x.Mode == "xDS" && !slices.Contains(targets, x.Target) {
				targets = append(targets, x.Target)
			}
		}
	}
	return targets, listeners
}
