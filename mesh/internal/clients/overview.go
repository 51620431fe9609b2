package clients

import (
	"cmp"
	"maps"
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
	Agents []Agent `json:"agents,omitempty"`
	// Destinations are ordered from bad to good.
	Destinations     []Destination `json:"destinations"`
	MoreDestinations int           `json:"more_destinations,omitempty"`
	Refusals         []Refusal     `json:"refusals,omitempty"`
	MoreRefusals     int           `json:"more_refusals,omitempty"`
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

	versions map[Version]*Version // until all are known
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
	agents       map[string]*Agent
	destinations map[string]*Destination
	refusals     map[Refusal]*Refusal // by type and error
	// worst has the destinations of the client that is added, by the worst of its types.
	worst map[*Destination]Standing
}

func newSums() *sums {
	return &sums{agents: make(map[string]*Agent), destinations: make(map[string]*Destination), refusals: make(map[Refusal]*Refusal), worst: make(map[*Destination]Standing)}
}

// entry returns the value of a key, which is the first one if there is none yet.
func entry[K comparable, E any](of map[K]*E, key K, first E) *E {
	e := of[key]
	if e == nil {
		e = new(E)
		*e = first
		of[key] = e
	}
	return e
}

func (s *sums) agent(name string) *Agent { return entry(s.agents, name, Agent{Name: name}) }

func (s *sums) destination(name string) *Destination {
	d := entry(s.destinations, name, Destination{})
	if d.versions == nil {
		d.Name, d.versions = faults.Shorten(name, maxName), make(map[Version]*Version)
	}
	return d
}

// refusal returns the one of the same type and error.
func (s *sums) refusal(r Refusal) *Refusal {
	key := Refusal{Type: r.Type, Error: r.Error}
	r.Clients = 0
	return entry(s.refusals, key, r)
}

func (d *Destination) version(typ, version string) *Version {
	v := Version{Type: typ, Version: version}
	return entry(d.versions, v, v)
}

func (s *sums) addClient(c *controlplane.ClientStatus, now time.Time) {
	s.Standings.add(ofOne[StandingOf(c, now)])
	if name := agentOf(c); name != "" {
		s.agent(name).Clients++
	}
	clear(s.worst)
	for i := range c.Types {
		t := &c.Types[i]
		if t.Refusing {
			s.refusal(Refusal{
				Client: faults.Shorten(c.Node.GetId(), maxName), Type: faults.Shorten(typeurl.ShortName(t.TypeURL), maxName),
				Version: t.NACK.Version, Error: faults.Shorten(t.NACK.Err.Message(), maxError),
			}).Clients++
		}
		if !slices.Contains(types, t.TypeURL) {
			continue
		}
		for _, name := range t.Names {
			d := s.destination(destinationName(name))
			s.worst[d] = max(s.worst[d], standingOf(t, now))
		}
		for _, r := range t.Sent {
			s.destination(destinationName(r.Name)).version(typeurl.ShortName(t.TypeURL), r.Version).Clients++
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
	d.RPCs.Seconds = max(d.RPCs.Seconds, m.Seconds)
	d.RPCs.Started += m.Started
	d.RPCs.Ended += m.Ended
	d.RPCs.Failed += m.Failed
}

// merge adds the overview of a replica.
func (s *sums) merge(o *Overview) {
	s.Standings.add(o.Standings)
	for _, a := range o.Agents {
		s.agent(a.Name).Clients += a.Clients
	}
	for i := range o.Destinations {
		from := &o.Destinations[i]
		d := s.destination(from.Name)
		d.Standings.add(from.Standings)
		d.MoreVersions += from.MoreVersions
		d.addRPCs(from.RPCs)
		for _, v := range from.Versions {
			d.version(v.Type, v.Version).Clients += v.Clients
		}
	}
	for _, r := range o.Refusals {
		s.refusal(r).Clients += r.Clients
	}
	s.MoreDestinations += o.MoreDestinations
	s.MoreRefusals += o.MoreRefusals
}

// overview puts everything in order, and leaves out what is beyond the bounds.
func (s *sums) overview() *Overview {
	s.Agents, _ = bounded(s.agents, maxAgents, func(a, b *Agent) int { return cmp.Or(b.Clients-a.Clients, cmp.Compare(a.Name, b.Name)) })
	for _, d := range s.destinations {
		ofType := make(map[string]int)
		for v := range d.versions {
			ofType[v.Type]++
			d.MostVersions = max(d.MostVersions, ofType[v.Type])
		}
		versions, more := bounded(d.versions, maxVersions, func(a, b *Version) int {
			return cmp.Or(place(a.Type)-place(b.Type), b.Clients-a.Clients, cmp.Compare(a.Version, b.Version))
		})
		d.Versions, d.MoreVersions, d.versions = versions, d.MoreVersions+more, nil
	}
	destinations, more := bounded(s.destinations, maxDestinations, worstFirst)
	s.Destinations, s.MoreDestinations = destinations, s.MoreDestinations+more
	refusals, more := bounded(s.refusals, maxRefusals, func(a, b *Refusal) int {
		return cmp.Or(b.Clients-a.Clients, cmp.Compare(a.Type, b.Type), cmp.Compare(a.Error, b.Error))
	})
	s.Refusals, s.MoreRefusals = refusals, s.MoreRefusals+more
	o := s.Overview // without the maps
	return &o
}

// worstFirst orders destinations: those that clients refuse, those whose RPCs fail, those whose clients do not answer, those whose clients
// are behind, and then those with the most RPCs.
func worstFirst(a, b *Destination) int {
	x, y := a.minute(), b.minute()
	failing := func(m outcomes.Minute) float64 { return float64(m.Failed) / float64(max(m.Seconds, 1)) }
	return cmp.Or(
		b.Refusing-a.Refusing, cmp.Compare(failing(y), failing(x)), b.Late-a.Late, b.Behind-a.Behind,
		cmp.Compare(y.Rate(), x.Rate()), b.Clients-a.Clients, cmp.Compare(a.Name, b.Name),
	)
}

func (d *Destination) minute() outcomes.Minute {
	if d.RPCs == nil {
		return outcomes.Minute{}
	}
	return *d.RPCs
}

// bounded returns the first elements in an order, and counts the others.
func bounded[K comparable, E any](all map[K]*E, most int, order func(a, b *E) int) (first []E, more int) {
	sorted := slices.SortedFunc(maps.Values(all), order)
	first = []E{}
	for _, e := range sorted[:min(len(sorted), most)] {
		first = append(first, *e)
	}
	return first, len(sorted) - len(first)
}
