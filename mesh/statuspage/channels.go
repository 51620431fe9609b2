package statuspage

import (
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/xdsclient"
)

const channelsShown = 50

func (v *view) channels(w wanted) any {
	return listOf(w, v.snap.channels, channelsShown, func(c inspect.Channel) bool {
		return w.finds(c.Target, c.Mode, string(c.State))
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
	// States counts the resources by their states.
	States map[string]int `json:"states"`
}

const (
	clientsShown = 20
	targetsShown = 20
	serversShown = 20
)

func (v *view) clients(w wanted) any {
	return listOf(w, v.snap.clients, clientsShown, func(c *xdsclient.Dump) bool {
		return w.finds(c.Node.GetId()) || w.finds(c.Targets...)
	}, viewClient)
}

func viewClient(c *xdsclient.Dump) clientView {
	view := clientView{
		Node: c.Node.GetId(), Cluster: c.Node.GetCluster(), Bootstrap: c.BootstrapSource,
		Targets: first(c.Targets, targetsShown), Servers: []livestate.Server{}, States: make(map[string]int),
	}
	view.More = len(c.Targets) - len(view.Targets)
	for _, s := range first(c.Servers, serversShown) {
		one := livestate.Server{URI: s.URI, Connected: s.Connected, NextAttempt: s.NextAttempt}
		if s.Err != nil {
			one.Error = s.Err.Error()
		}
		view.Servers = append(view.Servers, one)
	}
	for i := range c.Resources {
		view.States[string(c.Resources[i].State)]++
	}
	return view
}
