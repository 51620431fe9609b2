package statuspage

import (
	"maps"
	"slices"
	"time"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/xdsclient"
)

// channelView is a channel.
type channelView struct {
	Number   uint64    `json:"number"`
	Target   string    `json:"target"`
	Mode     string    `json:"mode"`
	State    string    `json:"state"`
	Reason   string    `json:"reason"`
	Since    time.Time `json:"since"`
	Clusters int       `json:"clusters"`
	Waits    int       `json:"waits,omitempty"`
	Why      string    `json:"why,omitempty"`
	Error    string    `json:"error,omitempty"`
}

const channelsShown = 50

func (v *view) channels() any {
	find := v.query.search("channels")
	var found []inspect.Channel
	for _, c := range v.snap.channels {
		if find.in(c.Target, c.Mode, string(c.State)) {
			found = append(found, c)
		}
	}
	return listOf(len(v.snap.channels), found, v.query.from("channels"), channelsShown, viewChannel)
}

func viewChannel(c inspect.Channel) channelView {
	view := channelView{
		Number: c.Number, Target: name(c.Target), Mode: c.Mode, State: string(c.State), Reason: clip(c.Reason, maxError), Since: c.Since,
		Why: clip(c.Why, maxError),
	}
	if c.Config != nil {
		view.Clusters, view.Waits, view.Error = c.Config.Clusters, c.Config.Waits, clip(c.Config.Error, maxError)
	}
	return view
}

// clientView is an xDS client of the process.
type clientView struct {
	Node      string       `json:"node"`
	Cluster   string       `json:"cluster,omitempty"`
	Bootstrap string       `json:"bootstrap"`
	Targets   []string     `json:"targets"`
	More      int          `json:"more,omitempty"` // targets
	Servers   []serverView `json:"servers"`
	States    []count      `json:"states"`
}

// serverView is a management server.
type serverView struct {
	URI       string `json:"uri"`
	Connected bool   `json:"connected"`
	Error     string `json:"error,omitempty"`
	// Next is about when an unreachable one is tried again.
	Next time.Time `json:"next,omitzero"`
}

// count is how often something occurs.
type count struct {
	Name string `json:"name"`
	N    int    `json:"n"`
}

const (
	clientsShown = 20
	targetsShown = 20
	serversShown = 20
)

func (v *view) clients() any {
	find := v.query.search("clients")
	var found []*xdsclient.Dump
	for _, c := range v.snap.clients {
		if find.in(append(c.Targets, c.Node.GetId())...) {
			found = append(found, c)
		}
	}
	return listOf(len(v.snap.clients), found, v.query.from("clients"), clientsShown, viewClient)
}

func viewClient(c *xdsclient.Dump) clientView {
	view := clientView{
		Node: name(c.Node.GetId()), Cluster: name(c.Node.GetCluster()), Bootstrap: name(c.BootstrapSource),
		Targets: names(c.Targets, targetsShown), Servers: []serverView{},
	}
	view.More = len(c.Targets) - len(view.Targets)
	for _, s := range c.Servers[:min(len(c.Servers), serversShown)] {
		view.Servers = append(view.Servers, serverView{name(s.URI), s.Connected, errorText(s.Err), s.NextAttempt})
	}
	states := make(map[string]int)
	for i := range c.Resources {
		states[string(c.Resources[i].State)]++
	}
	view.States = counts(states)
	return view
}

// counts lists a map by name.
func counts(m map[string]int) []count {
	list := make([]count, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, count{clip(name, maxName), m[name]})
	}
	return list
}
