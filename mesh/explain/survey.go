package explain

import "context"

// A Survey is what the RPCs of a channel may use, whatever their methods and headers are. Its Explanation has the Listener, the
// RouteConfiguration, the virtual hosts, and all clusters that routes of the chosen one lead to, without shares; it has no routes.
type Survey struct {
	*Explanation
	// Services are the targets that filters of the Listener need for RPCs not to fail, by the names of the filters.
	Services map[string]string
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
	s, _, err := sourceOfChannel(ctx, &request)
	if err != nil {
		return nil, err
	}
	return survey(s, request)
}

func survey(s *Source, request Request) (*Survey, error) {
	e, listener, err := begin(s, request)
	if err != nil || listener == nil {
		return &Survey{Explanation: e.out}, err
	}
	services := make(map[string]string)
	if e.resolve(listener) {
		for _, in := range e.listener.Filters {
			if c, ok := in.Config.(interface{ Needs() string }); ok && !in.Disabled && c.Needs() != "" {
				services[in.Name] = c.Needs()
			}
		}
		for _, name := range e.virtualHost.Clusters() {
			e.useCluster(name)
		}
		e.describeClusters()
	}
	e.out.Notes = append(e.out.Notes, s.Notes...)
	return &Survey{Explanation: e.out, Services: services}, nil
}
