package statuspage

import (
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/mesh/explain"
)

// resourceView is a resource and how it stands.
type resourceView struct {
	explain.ResourceStatus
	// Client is the node id of the client that has it, if the process has several clients.
	Client string `json:"client,omitempty"`
	// Bytes is the size of the version in use.
	Bytes int `json:"bytes,omitempty"`
	// MoreIgnored is how many ignored fields are not shown.
	MoreIgnored int `json:"more_ignored,omitempty"`
}

// resourcesView is the resources of all clients.
type resourcesView struct {
	list[resourceView]
	// Types and States count all resources.
	Types  map[string]int `json:"types"`
	States map[string]int `json:"states"`
}

const (
	resourcesShown = 25
	fieldsShown    = 20 // ignored ones, of a resource
)

func (v *view) resources(w wanted) any {
	typ, state := w.get("type"), w.get("state")
	view := resourcesView{Types: make(map[string]int), States: make(map[string]int)}
	view.list = listOf(w, v.snap.entries, resourcesShown, func(e *entry) bool {
		short := typeurl.ShortName(e.TypeURL)
		view.Types[short]++
		view.States[string(e.State)]++
		switch {
		case typ != "" && typ != short,
			state == "trouble" && e.Failure == nil,
			state == "ignored" && len(e.Ignored()) == 0,
			state != "" && state != "trouble" && state != "ignored" && state != string(e.State),
			!w.finds(e.Name, e.Version, e.Server):
			return false
		}
		return true
	}, v.resource)
	return view
}

// resource describes a resource with its ignored fields, of which those that matter come first.
func (v *view) resource(e *entry) resourceView {
	r := resourceView{ResourceStatus: *explain.StatusOf(e.ResourceDump), Bytes: len(e.Any().GetValue())}
	if len(v.snap.clients) > 1 {
		r.Client = e.client.Node.GetId()
	}
	r.MoreIgnored = max(0, len(r.Ignored)-fieldsShown)
	r.Ignored = r.Ignored[:len(r.Ignored)-r.MoreIgnored]
	return r
}
