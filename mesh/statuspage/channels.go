package statuspage

import (
	"maps"
	"slices"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/xdsclient"
)

const channelsShown = 50

func (v *view) channels(w wanted) any {
	return listOf(w, v.snap.channels, channelsShown, func(c inspect.Channel, find needle) bool {
		return find.in(c.Target, c.Mode, string(c.State))
	}, same)
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

func (v *view) clients(w wanted) any {
	return listOf(w, v.snap.clients, clientsShown, func(c *xdsclient.Dump, find needle) bool {
		return find.in(c.Node.GetId()) || find.in(c.Targets...)
	}, viewClient)
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
