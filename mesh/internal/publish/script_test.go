package publish_test

import (
	"fmt"
	"strings"
	"testing"
	"text/template"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/folder/foldertest"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// What a store has of files, and what an update of these changes. The steps are:
//
//	options authority=NAME nosources separate   at first; separate: the files have authors of their own, and clients reject 10.0.0.9
//	write FILE TEXT                publishes with this text of a file: what the update says, and "refreshed" if the tags are others
//	edit FILE TEXT                 writes it without publishing
//	routes NAME SERVICE VERSION    the first cluster of the routes that a client gets, or the error
//	endpoints NAME, cluster NAME   the address of the first endpoint, or the error in the place of a resource
//
// A text is a template with the functions of package foldertest, and those below.
func TestScripts(t *testing.T) { golden.Scripts(t, "testdata/*.txt", 0, beginScript) }

var texts = template.FuncMap{
	"services": func() string { return services }, "policy": policy, "resource": resource, "override": override,
	"replace": func(old, new, text string) string { return strings.ReplaceAll(text, old, new) },
	"tags": func(n int) string {
		var all []string
		for i := range n {
			all = append(all, resource("other", fmt.Sprintf("tag%d: a", i)))
		}
		return strings.Join(all, "---\n")
	},
}

func addressOf(t testing.TB, r *controlplane.Resource) string {
	var a endpointpb.ClusterLoadAssignment
	xdstest.NoError(t, r.Any().UnmarshalTo(&a))
	return a.GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress().GetAddress()
}

func beginScript(t testing.TB) (step func(string) string) {
	s := newSite(t, publish.Options{})
	return func(words string) string {
		command, rest, _ := strings.Cut(words, " ")
		name, text, _ := strings.Cut(rest, " ")
		switch command {
		case "options":
			var opts publish.Options
			if authority, given := strings.CutPrefix(name, "authority="); given {
				opts.Authority = authority
			}
			opts.NoSources = name == "nosources"
			separate := name == "separate"
			if separate {
				opts.Check = func(r *controlplane.Resource) (meshroute.Severity, string) {
					if r.Any().GetTypeUrl() == meshroute.EndpointsType && addressOf(t, r) == "10.0.0.9" {
						return meshroute.Error, "refused"
					}
					return meshroute.Note, ""
				}
			}
			s = newSite(t, opts)
			s.separate = separate
			return ""
		case "write", "edit":
			parsed, err := template.New("").Funcs(texts).Parse(text)
			xdstest.NoError(t, err)
			var b strings.Builder
			xdstest.NoError(t, parsed.Execute(&b, nil))
			if s.write(name, b.String()); command == "edit" {
				return ""
			}
			return s.said()
		case "routes":
			service, version, _ := strings.Cut(text, " ")
			return s.cluster(name, node(service, version))
		}
		typeURL := map[string]string{"endpoints": meshroute.EndpointsType, "cluster": meshroute.ClusterType}[command]
		r, st := s.store.Choose(typeURL, name, dynparam.Constraints{})
		switch {
		case st != nil:
			return st.Code().String() + ": " + st.Message()
		case r == nil:
			return "nothing"
		}
		return addressOf(t, r)
	}
}

// said publishes, and returns what that says.
func (s *site) said() string {
	before := s.refreshed.Load()
	summary, err := s.tryPublish()
	if err != nil {
		return strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	said := fmt.Sprintf("version %d, %d changed, %d removed", summary.Version, summary.Changed, summary.Removed)
	if len(summary.What) > 0 {
		said += ": " + strings.Join(summary.What, ", ")
	}
	if s.refreshed.Load() > before {
		said += "; refreshed"
	}
	for _, r := range summary.Reports {
		if said += "; " + r.String(); r.LeftOut {
			said += " (left out)"
		}
	}
	return said
}

const services = foldertest.Services
