package statuspage

import (
	"maps"
	"slices"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/xdsclient"
)

const channelsShown = 50

func (v *view) channels() any {
	find := v.query.search("channels")
	var found []inspect.Channel
	for _, c := range v.snap.channels {
		if find.in(c.Target, c.Mode, string(c.State)) {
			found = append(found, c)
		}
	}
	return listOf(len(v.snap.channels), found, v.query.from("channels"), channelsShown, same)
}

// clientView is an xDS client of the process.
type clientView struct {
	Node      string             `json:"node"`
	Cluster   string             `json:"cluster,omitempty"`
	Bootstrap string             `json:"bootstrap"`
	Targets   []string           `json:"targets"`
	More      int                `json:"more,omitempty"` // targets
	Servers   []livestate.Server `json:"servers"`
	States    []count            `json:"states"`
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
		Node: c.Node.GetId(), Cluster: c.Node.GetCluster(), Bootstrap: c.BootstrapSource,
		Targets: first(c.Targets, targetsShown), Servers: []livestate.Server{},
	}
	view.More = len(c.Targets) - len(view.Targets)
	for _, s := range first(c.Servers, serversShown) {
		one := livestate.Server{URI: s.URI, Connected: s.Connected, NextAttempt: s.NextAttempt}
		if s.Err != nil {
			one.Error = s.Err.Error()
		}
		view.Servers = append(view.Servers, one)
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
		list = append(list, count{name, m[name]})
	}
	return list
}
