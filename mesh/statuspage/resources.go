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
	Ignored  int           `json:"ignored,omitempty"`
	Warnings int           `json:"warnings,omitempty"`
	Open     bool          `json:"open,omitempty"`
	Fields   []ignoredView `json:"fields,omitempty"`
}

type ignoredView struct {
	Path    string `json:"path"`
	Reason  string `json:"reason"`
	Warning bool   `json:"warning,omitempty"`
	Places  int    `json:"places,omitempty"`
}

// resourcesView is the resources of all clients.
type resourcesView struct {
	list[resourceView]
	// Types and States count all resources.
	Types  []count `json:"types"`
	States []count `json:"states"`
}

const resourcesShown = 25

func (v *view) resources() any {
	const section = "resources"
	find, typ, state := v.query.search(section), v.query.get(section, "type"), v.query.get(section, "state")
	all := v.snap.entries
	types, states := make(map[string]int), make(map[string]int)
	var found []*entry
	for _, e := range all {
		short := typeurl.ShortName(e.TypeURL)
		types[short]++
		states[string(e.State)]++
		switch {
		case typ != "" && typ != short,
			state == "trouble" && e.Failure == nil,
			state == "ignored" && len(e.Ignored()) == 0,
			state != "" && state != "trouble" && state != "ignored" && state != string(e.State),
			!find.in(e.Name, e.Version, e.Server):
		default:
			found = append(found, e)
		}
	}
	result := resourcesView{Types: counts(types), States: counts(states)}
	result.list = listOf(len(all), found, v.query.from(section), resourcesShown, v.resource)
	return result
}

// resource describes a resource with its ignored fields.
func (v *view) resource(e *entry) resourceView {
	r := viewResource(e)
	ignored := e.Ignored()
	r.Ignored = len(ignored)
	r.Open = slices.Contains(v.query.open, r.ID)
	if len(v.snap.clients) > 1 {
		r.Client = name(e.client.Node.GetId())
	}
	for _, i := range ignored {
		if i.Severity == xdsclient.SeverityWarning {
			r.Warnings++
		}
		if r.Open {
			r.Fields = append(r.Fields, ignoredView{clip(i.Path, maxName), clip(i.Reason, maxError), i.Severity == xdsclient.SeverityWarning, i.Places})
		}
	}
	return r
}

// viewResource describes a resource with short names and texts.
func viewResource(e *entry) resourceView {
	status := *explain.StatusOf(e.ResourceDump)
	for _, text := range []*string{&status.Type, &status.Name, &status.Version, &status.Server, &status.Variant, &status.ErrorVersion} {
		*text = name(*text)
	}
	status.Error = clip(status.Error, maxError)
	return resourceView{ResourceStatus: status, ID: e.id(), Bytes: len(e.Any().GetValue())}
}
