package explain

import "context"

// SurveySource surveys the channel of a request's target or Listener by what a client holds: what its RPCs may use, whatever their methods
// and headers are. The Explanation has the Listener, the RouteConfiguration, the virtual hosts, all clusters that routes of the chosen one lead
// to, without shares, and Services; it has no routes. Missing resources are a part of it; it is an error if the client has not asked for the Listener.
func SurveySource(s *Source, request Request) (*Explanation, error) {
	e, err := begin(s, request)
	if err != nil {
		return nil, err
	}
	if e.resolve() {
		e.out.Services = make(map[string]string)
		for _, in := range e.listener.Filters {
			if c, ok := in.Config.(interface{ Needs() string }); ok && !in.Disabled && c.Needs() != "" {
				e.out.Services[in.Name] = c.Needs()
			}
		}
		for _, name := range e.virtualHost.Clusters() {
			e.useCluster(name)
		}
		e.describeClusters()
	}
	e.out.Notes = append(e.out.Notes, s.Notes...)
	return e.out, nil
}

// SurveyProcess surveys the channel of this process with a target; see [InProcess] about ctx. While the channel has no
// resources, there is only an Outcome.
func SurveyProcess(ctx context.Context, target string) (*Explanation, error) {
	e, _, err := ofChannel(ctx, Request{Target: target}, SurveySource)
	return e, err
}
