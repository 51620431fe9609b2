package explain

import (
	"context"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// A Survey is what the RPCs of a channel may use, whatever their methods and headers are. Its Explanation has the Listener, the
// RouteConfiguration, the virtual hosts, and all clusters that routes of the chosen one lead to, without shares; it has no routes.
type Survey struct {
	*Explanation
	// Values are the Clusters that the client has, by name.
	Values map[string]*xdsresource.Cluster
}

// SurveySource surveys the channel of a target, or of a Listener, by what a client holds. Missing resources are a part of the
// survey; it is an error if the client has not asked for the Listener.
func SurveySource(s *Source, target, listener string) (*Survey, error) {
	return survey(s, Request{Target: target, Listener: listener})
}

// SurveyProcess surveys the channel of this process with a target; see [InProcess] about ctx. While the channel has no
// resources, there is only an Outcome.
func SurveyProcess(ctx context.Context, target string) (*Survey, error) {
	request := Request{Target: target}
	s, _, early, err := sourceOfChannel(ctx, &request)
	switch {
	case err != nil:
		return nil, err
	case early != nil:
		return &Survey{Explanation: early}, nil
	}
	return survey(s, request)
}

func survey(s *Source, request Request) (*Survey, error) {
	e := newExplainer(s, request)
	listener, err := e.findListener()
	if err != nil {
		return nil, err
	}
	e.out.Request = e.request
	values := make(map[string]*xdsresource.Cluster)
	if e.resolve(listener) {
		for _, name := range e.virtualHost.Clusters() {
			e.useCluster(name)
		}
		e.describeClusters()
		for name := range e.described {
			if r := e.findResource(typeurl.Cluster, name); r != nil {
				if value, _ := e.holdings.decode(r); value != nil {
					values[name] = value.(*xdsresource.Cluster)
				}
			}
		}
	}
	e.out.Notes = append(e.out.Notes, s.Notes...)
	return &Survey{Explanation: e.out, Values: values}, nil
}
