package statuspage

import (
	"cmp"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
)

// overview answers whether the process is healthy, and says what the page offers.
type overview struct {
	Channels int `json:"channels"`
	Clients  int `json:"clients"`
	// Verdict is nil in a process that is only a control plane.
	Verdict  *livestate.Verdict `json:"verdict,omitempty"`
	Problems []problemView      `json:"problems"`
	More     int                `json:"more,omitempty"` // problems
	// Plane is set if a control plane runs in the process.
	Plane *planeView `json:"plane,omitempty"`
}

// planeView is how the control plane of the process is.
type planeView struct {
	livestate.Verdict
	Configuration *planestate.State `json:"configuration,omitempty"`
}

// problemView is a problem, with what leads to more about it.
type problemView struct {
	livestate.Problem
	// ID is that of the cluster, and Channel the number of the channel. Method is one whose RPCs meet the problem.
	ID      string `json:"id,omitempty"`
	Channel uint64 `json:"channel,omitempty"`
	Method  string `json:"method,omitempty"`
	// Others is how many other clients of the control plane have the problem.
	Others int `json:"others,omitempty"`
}

func (v *view) overview(wanted) any {
	o := overview{Channels: len(v.snap.channels), Clients: len(v.snap.clients), Problems: []problemView{}}
	if v.handler.plane {
		o.Plane = v.planeOverview(&o)
	}
	if o.Plane != nil && o.Channels == 0 && o.Clients == 0 {
		return o
	}
	p := v.snap.pulse
	verdict := p.Verdict
	verdict.Text = "" // which grows older: the page adds the ages to the parts
	o.Verdict = &verdict
	for i, method := range v.snap.methods {
		x := p.Problems[i]
		view := problemView{Problem: x, Channel: v.channelOf(x.Target), Method: method}
		if x.Cluster != "" {
			view.ID = clusterID(x.Cluster)
		}
		o.Problems = append(o.Problems, view)
	}
	slices.SortStableFunc(o.Problems, func(a, b problemView) int {
		return cmp.Compare(a.Severity.Rank(), b.Severity.Rank())
	})
	o.More += len(p.Problems) - min(len(p.Problems), livestate.MaxProblems)
	return o
}

// channelOf returns the number of the first channel with a target, or 0.
func (v *view) channelOf(target string) uint64 {
	for i := range v.snap.channels {
		if c := &v.snap.channels[i]; target != "" && c.Target == target {
			return c.Number
		}
	}
	return 0
}

// methodsFor returns snapshot.methods.
func (s *snapshot) methodsFor(problems []livestate.Problem) (methods []string) {
	for _, p := range problems[:min(len(problems), livestate.MaxProblems)] {
		methods = append(methods, s.methodFor(p.Target, p.Cluster))
	}
	return methods
}

// methodFor returns a method that a route of a channel sends to a cluster, or "".
func (s *snapshot) methodFor(target, cluster string) string {
	for i := range s.channels {
		c := &s.channels[i]
		if c.Target != target || cluster == "" {
			continue
		}
		_, routes, _ := s.routesOf(c)
		if routes == nil {
			continue
		}
		host := routes.VirtualHost(c.Config.Authority)
		if host == nil {
			continue
		}
		for _, r := range host.Routes {
			if leadsTo(r, func(name string) bool { return name == cluster }) {
				return methodOf(&r.Match)
			}
		}
	}
	return ""
}

// methodOf returns a method whose path a route matches, or "".
func methodOf(m *matching.Route) string {
	if m.PathKind == matching.PathRegex {
		return ""
	}
	if m.PathKind == matching.PathExact || strings.Count(m.Path, "/") > 1 && !strings.HasSuffix(m.Path, "/") {
		return m.Path
	}
	switch path := strings.TrimSuffix(m.Path, "/"); path {
	case "":
		return "/any.Service/Method"
	default:
		return path + "/Method"
	}
}
