package clients

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// Bounds of an Overview.
const (
	maxDestinations = 200
	maxVersions     = 10
	maxRefusals     = 20
	maxAgents       = 10
)

// Overview is the clients of one control plane, or of several replicas, at a glance.
type Overview struct {
	Standings
	// Agents counts the clients by their software and its version, the most frequent first.
	Agents     []Agent `json:"agents,omitempty"`
	MoreAgents int     `json:"more_agents,omitempty"`
	// Destinations are ordered from bad to good.
	Destinations     []Destination `json:"destinations"`
	MoreDestinations int           `json:"more_destinations,omitempty"`
	// Partial counts the clients with more names of a type than controlplane.Server.Overview lists: Destinations have these alone.
	Partial      int       `json:"partial,omitempty"`
	Refusals     []Refusal `json:"refusals,omitempty"`
	MoreRefusals int       `json:"more_refusals,omitempty"`
}

// Agent is a kind of client.
type Agent struct {
	Name    string `json:"name"`
	Clients int    `json:"clients"`
}

// Destination is a service that clients subscribe to, or a cluster: the Listener, RouteConfiguration, Cluster and ClusterLoadAssignment of
// one name.
type Destination struct {
	Name string `json:"name"`
	// Standings has the clients that subscribe to it, each by the worst of these types.
	Standings
	// MostVersions is of how many versions clients have a resource of one type, at most.
	MostVersions int `json:"most_versions"`
	// Versions are those of its resources that clients were sent, the most frequent of a type first.
	Versions     []Version `json:"versions,omitempty"`
	MoreVersions int       `json:"more_versions,omitempty"`
	// RPCs is what clients have reported in the last six intervals (LRS), nil if they have reported nothing: RPCs that were sent to an endpoint, or
	// dropped. Reports have no latencies, and Failed counts each status but OK.
	RPCs *outcomes.Minute `json:"rpcs,omitempty"`

	versions map[Version]int // how many clients have each, until all are known
}

// Version is a version of a resource, and how many clients have it.
type Version struct {
	Type    string `json:"type"`
	Version string `json:"version"`
	Clients int    `json:"clients"`
}

// Refusal is what clients reject for the same reason.
type Refusal struct {
	// Client is the node of one of them.
	Client  string `json:"client"`
	Clients int    `json:"clients"`
	Type    string `json:"type"`
	Version string `json:"version"`
	Error   string `json:"error"`
}

// types are the types of a destination's resources, in order.
var types = []string{typeurl.Listener, typeurl.RouteConfiguration, typeurl.Cluster, typeurl.Endpoints}

// OverviewOf returns the overview of streams, those of controlplane.Server.Overview, and of the loads that clients have reported.
func OverviewOf(streams []controlplane.ClientStatus, loads []controlplane.RecentLoad) *Overview {
	s := newSums()
	now := time.Now()
	for i := range streams {
		s.addClient(&streams[i], now)
	}
	for _, load := range loads {
		s.destination(destinationName(load.Cluster)).addRPCs(&outcomes.Minute{
			Seconds: int(load.Over.Round(time.Second) / time.Second), Started: load.Issued + load.Dropped,
			Ended: load.Succeeded + load.Failed + load.Dropped, Failed: load.Failed + load.Dropped,
		})
	}
	return s.overview()
}

// sums is an Overview in the making: what its lists will have is in maps.
type sums struct {
	Overview
	agents       map[string]int
	destinations map[string]*Destination
	refusals     map[Refusal]*Refusal // by type and error
	// worst has the destinations of the client that is added, by the worst of its types.
	worst map[*Destination]Standing
}

func newSums() *sums {
	none := Overview{Destinations: []Destination{}} // not null in JSON
	return &sums{Overview: none, agents: make(map[string]int), destinations: make(map[string]*Destination), refusals: make(map[Refusal]*Refusal), worst: make(map[*Destination]Standing)}
}

func (s *sums) destination(name string) *Destination {
	d := s.destinations[name]
	if d == nil {
		d = &Destination{Name: faults.Shorten(name, maxName), versions: make(map[Version]int)}
		s.destinations[name] = d
	}
	return d
}

// refuse adds what clients reject to what others reject for the same reason.
func (s *sums) refuse(r Refusal) {
	key := Refusal{Type: r.Type, Error: r.Error}
	if same := s.refusals[key]; same != nil {
		same.Clients += r.Clients
	} else {
		s.refusals[key] = &r
	}
}

func (s *sums) addClient(c *controlplane.ClientStatus, now time.Time) {
	s.Standings.add(ofOne[StandingOf(c, now)])
	if name := agentOf(c); name != "" {
		s.agents[name]++
	}
	clear(s.worst)
	if slices.ContainsFunc(c.Types, func(t controlplane.TypeStatus) bool { return t.NameCount > max(len(t.Names), len(t.Locators)) }) {
		s.Partial++
	}
	for i := range c.Types {
		t := &c.Types[i]
		if t.Refusing {
			s.refuse(Refusal{
				Client: faults.Shorten(c.Node.GetId(), maxName), Clients: 1, Type: faults.Shorten(typeurl.ShortName(t.TypeURL), maxName),
				Version: t.NACK.Version, Error: faults.Shorten(t.NACK.Err.Message(), maxError),
			})
		}
		if !slices.Contains(types, t.TypeURL) {
			continue
		}
		for _, name := range t.Names {
			d := s.destination(destinationName(name))
			s.worst[d] = max(s.worst[d], standingOf(t, now))
		}
		for _, r := range t.Sent {
			s.destination(destinationName(r.Name)).versions[Version{Type: typeurl.ShortName(t.TypeURL), Version: r.Version}]++
		}
	}
	for d, standing := range s.worst {
		d.Standings.add(ofOne[standing])
	}
}

// destinationName is the name of a resource without what distinguishes its type (xRFC TP1).
func destinationName(name string) string {
	if n, err := xdsname.Parse(name); err == nil && n.NewStyle {
		if _, id, found := strings.Cut(n.Text, "/"+n.Type+"/"); found {
			return id
		}
	}
	return name
}

// agentOf returns the software of a client and its version.
func agentOf(c *controlplane.ClientStatus) string {
	return faults.Shorten(strings.TrimSpace(c.Node.GetUserAgentName()+" "+c.Node.GetUserAgentVersion()), maxName)
}

// place returns where a type, by its short name, is in types.
func place(typ string) int {
	return slices.IndexFunc(types, func(url string) bool { return typeurl.ShortName(url) == typ })
}

func (d *Destination) addRPCs(m *outcomes.Minute) {
	if m == nil {
		return
	}
	if d.RPCs == nil {
		d.RPCs = new(outcomes.Minute)
	}
	d.RPCs.Add(m)
}

// merge adds the overview of a replica.
func (s *sums) merge(o *Overview) {
	s.Standings.add(o.Standings)
	for _, a := range o.Agents {
		s.agents[a.Name] += a.Clients
	}
	for i := range o.Destinations {
		from := &o.Destinations[i]
		d := s.destination(from.Name)
		d.Standings.add(from.Standings)
		d.MoreVersions += from.MoreVersions
		d.addRPCs(from.RPCs)
		for _, v := range from.Versions {
			d.versions[Version{Type: v.Type, Version: v.Version}] += v.Clients
		}
	}
	for _, r := range o.Refusals {
		s.refuse(r)
	}
	s.MoreAgents += o.MoreAgents
	s.MoreDestinations += o.MoreDestinations
	s.MoreRefusals += o.MoreRefusals
	s.Partial += o.Partial
}

// overview puts everything in order, and leaves out what is beyond the bounds.
func (s *sums) overview() *Overview {
	for name, clients := range s.agents {
		s.Agents = append(s.Agents, Agent{name, clients})
	}
	for _, d := range s.destinations {
		ofType := make(map[string]int)
		for v, clients := range d.versions {
			ofType[v.Type]++
			d.MostVersions = max(d.MostVersions, ofType[v.Type])
			d.Versions = append(d.Versions, Version{v.Type, v.Version, clients})
		}
		d.versions = nil
		bound(&d.Versions, &d.MoreVersions, maxVersions, func(a, b Version) int {
			return cmp.Or(place(a.Type)-place(b.Type), b.Clients-a.Clients, cmp.Compare(a.Version, b.Version))
		})
		s.Destinations = append(s.Destinations, *d)
	}
	for _, r := range s.refusals {
		s.Refusals = append(s.Refusals, *r)
	}
	bound(&s.Agents, &s.MoreAgents, maxAgents, func(a, b Agent) int { return cmp.Or(b.Clients-a.Clients, cmp.Compare(a.Name, b.Name)) })
	bound(&s.Destinations, &s.MoreDestinations, maxDestinations, worstFirst)
	bound(&s.Refusals, &s.MoreRefusals, maxRefusals, func(a, b Refusal) int {
		return cmp.Or(b.Clients-a.Clients, cmp.Compare(a.Type, b.Type), cmp.Compare(a.Error, b.Error))
	})
	o := s.Overview // without the maps
	return &o
}

// worstFirst orders destinations: those that clients refuse, those whose RPCs fail, those whose clients do not answer, those whose clients
// are behind, and then those with the most RPCs.
func worstFirst(a, b Destination) int {
	x, y := a.minute(), b.minute()
	failing := func(m *outcomes.Minute) float64 { return float64(m.Failed) / float64(max(m.Seconds, 1)) }
	return cmp.Or(
		b.Refusing-a.Refusing, cmp.Compare(failing(y), failing(x)), b.Late-a.Late, b.Behind-a.Behind,
		cmp.Compare(y.Rate(), x.Rate()), b.Clients-a.Clients, cmp.Compare(a.Name, b.Name),
	)
}

func (d *Destination) minute() *outcomes.Minute { return cmp.Or(d.RPCs, &outcomes.Minute{}) }

// bound orders a list, leaves out what is beyond a limit, and counts that.
func bound[E any](list *[]E, more *int, most int, order func(a, b E) int) {
	slices.SortFunc(*list, order)
	n := min(len(*list), most)
	*more += len(*list) - n
	*list = (*list)[:n:n]
}
