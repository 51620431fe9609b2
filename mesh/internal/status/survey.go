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
	requests := []explain.Request{{Target: target}}
	if target == "" {
		requests = r.channels()
	}
	var surveys []*explain.Explanation
	for _, request := range requests {
		err := withSource(p.Address, clients, request.Target, func(s *explain.Source) error {
			found, err := explain.SurveySource(s, request)
			if err == nil {
				surveys = append(surveys, found)
			}
			return err
		})
		if err != nil && (target != "" || request.Target == "") { // a channel that has not asked for its Listener is told by the state of channels
			return nil, nil, err
		}
	}
	return r, surveys, nil
}

// channels returns what to survey: the targets of the channels, and then the Listeners of the clients that do not name theirs.
func (r *Report) channels() []explain.Request {
	var targets, listeners []explain.Request
	for i := range r.Clients {
		c := &r.Clients[i]
		if c.State == nil {
			for j := range c.Resources {
				if c.Resources[j].Type == typeurl.ShortName(typeurl.Listener) {
					listeners = append(listeners, explain.Request{Listener: c.Resources[j].Name})
				}
			}
			continue
		}
		for _, x := range c.State.Channels {
			if x.Mode == "xDS" && !slices.ContainsFunc(targets, func(r explain.Request) bool { return r.Target == x.Target }) {
				targets = append(targets, explain.Request{Target: x.Target})
			}
		}
	}
	return append(targets, listeners...)
}
