package statuspage

import (
	"slices"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/xdsclient"
)

// resourceView is a resource and how it stands.
type resourceView struct {
	explain.ResourceStatus
	ID string `json:"id"`
	// Client is the node id of the client that has it, if the process has several clients.
	Client string `json:"client,omitempty"`
	// Bytes is the size of the version in use.
	Bytes int `json:"bytes,omitempty"`
	// Ignored and Warnings count the ignored fields. Fields lists them for what is unfolded.
	Ignored  int                    `json:"ignored,omitempty"`
	Warnings int                    `json:"warnings,omitempty"`
	Open     bool                   `json:"open,omitempty"`
	Fields   []explain.IgnoredField `json:"fields,omitempty"`
}

// resourcesView is the resources of all clients.
type resourcesView struct {
	list[resourceView]
	// Types and States count all resources.
	Types  map[string]int `json:"types"`
	States map[string]int `json:"states"`
}

const resourcesShown = 25

func (v *view) resources(w wanted) any {
	typ, state := w.get("type"), w.get("state")
	view := resourcesView{Types: make(map[string]int), States: make(map[string]int)}
	view.list = listOf(w, v.snap.entries, resourcesShown, func(e *entry, find needle) bool {
		short := typeurl.ShortName(e.TypeURL)
		view.Types[short]++
		view.States[string(e.State)]++
		switch {
		case typ != "" && typ != short,
			state == "trouble" && e.Failure == nil,
			state == "ignored" && len(e.Ignored()) == 0,
			state != "" && state != "trouble" && state != "ignored" && state != string(e.State),
			!find.in(e.Name, e.Version, e.Server):
			return false
		}
		return true
	}, v.resource)
	return view
}

// resource describes a resource with its ignored fields.
func (v *view) resource(e *entry) resourceView {
	ignored := e.Ignored()
	r := resourceView{ResourceStatus: *explain.StatusOf(e.ResourceDump), ID: e.id(), Bytes: len(e.Any().GetValue()), Ignored: len(ignored)}
	r.Open = slices.Contains(v.query.open, r.ID)
	if len(v.snap.clients) > 1 {
		r.Client = e.client.Node.GetId()
	}
	for _, i := range ignored {
		if i.Severity == xdsclient.SeverityWarning {
			r.Warnings++
		}
		if r.Open {
			r.Fields = append(r.Fields, explain.IgnoredOf(i))
		}
	}
	return r
}
