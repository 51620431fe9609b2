package site

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// userAgents are the names of implementations. Another one has none.
var userAgents = map[meshroute.Implementation]string{
	meshroute.Dynxds: dialect.UserAgentDynxds, meshroute.GRPCGo: dialect.UserAgentGo, meshroute.Envoy: dialect.UserAgentEnvoy,
}

// ExplainRPC explains an RPC of a client by what it would hold of a server of the folder. Errors are those of Resources and of
// explain.Explain. Notes say what may be wrong with the view itself, such as a misspelled tag, and which policies are for others.
func ExplainRPC(v View, request explain.Request) (*explain.Explanation, error) {
	loaded, err := loadView(v)
	if err != nil {
		return nil, err
	}
	if request.Listener == "" {
		if authority, _, err := explain.ParseTarget(request.Target); err == nil && authority != "" && authority != v.Authority {
			return nil, exit.Usagef("the folder serves %s only with --authority %s: add it here, too", request.Target, authority)
		}
		if request.Listener, err = loaded.listenerName(request.Target); err != nil {
			return nil, err
		}
	}
	client := v.client()
	source := &explain.Source{
		Client: explain.Client{Source: v.Dir, Name: userAgents[v.Implementation]},
		Notes:  append(loaded.warnings(client), loaded.ofOthers(client, request.Target)...),
	}
	for _, item := range loaded.items(v) {
		source.Resources = append(source.Resources, item.held())
	}
	return explain.Explain(source, request)
}

// held returns the resource as its client has it.
func (i *Item) held() *explain.Resource {
	if i.Err != nil {
		return &explain.Resource{TypeURL: i.TypeURL, ResourceStatus: explain.ResourceStatus{
			Name: i.Name, State: explain.WouldBeAnError, Error: fmt.Sprintf("%s: %s", i.Err.Code(), i.Err.Message()),
		}}
	}
	return &explain.Resource{TypeURL: i.TypeURL, Raw: i.Resource.Any(), ResourceStatus: explain.ResourceStatus{
		Name: i.Name, State: explain.WouldBeSent, Version: i.Resource.Version(), Variant: i.Resource.Parameters().String(),
	}}
}

// listenerName returns the name of the Listener for a target, "xds:///backend" or only "backend". The
// folder may have it as a resource.
func (l *loaded) listenerName(target string) (string, error) {
	_, service, err := explain.ParseTarget(target)
	if err != nil {
		return "", err
	}
	if err := l.checkService(service); err != nil {
		if slices.ContainsFunc(l.all, func(one Item) bool { return one.TypeURL == meshroute.ListenerType && one.Name == service }) {
			return service, nil
		}
		return "", err
	}
	return l.publisher.Mesh().ListenerName(service), nil
}

// warnings returns notes on a client whose service, or one of whose tags, is in no service or policy.
// Such a client gets what all clients get.
func (l *loaded) warnings(c meshroute.Client) []string {
	services, tags := make(map[string]bool), make(map[string]bool)
	for _, s := range l.content.Services {
		services[s.Name] = true
	}
	add := func(ref meshroute.TargetRef) {
		services[ref.Name] = true
		for key := range ref.Tags {
			tags[key] = true
		}
	}
	for _, p := range l.content.Policies {
		for i := range p.To {
			add(p.To[i].Clients)
		}
	}
	for _, r := range l.content.Resources {
		for key := range r.Parameters {
			tags[key] = true
		}
	}
	delete(services, "")
	var notes []string
	if c.Service != "" && !services[c.Service] {
		notes = append(notes, fmt.Sprintf("no service or policy of the folder is named %q, as the client's service is; known are %s",
			c.Service, oneOf(services)))
	}
	for _, key := range slices.Sorted(maps.Keys(c.Tags)) {
		if !tags[key] {
			notes = append(notes, fmt.Sprintf("no policy of the folder uses the client's tag %q; known are %s", key, oneOf(tags)))
		}
	}
	return notes
}

// maxOfOthers bounds the policies for other clients that are named.
const maxOfOthers = 5

// ofOthers returns notes on the policies for the service of a target that are for other clients.
func (l *loaded) ofOthers(c meshroute.Client, target string) (notes []string) {
	_, service, err := explain.ParseTarget(target)
	if err != nil {
		return nil // which the explanation says
	}
	for _, p := range l.content.Policies {
		at := slices.IndexFunc(p.To, func(to meshpolicy.To) bool {
			return (to.TargetRef.Name == "" || to.TargetRef.Name == service) && !to.Clients.Selects(c)
		})
		if at < 0 {
			continue
		}
		if len(notes) == maxOfOthers {
			return append(notes, "and further policies are for other clients")
		}
		clients := p.To[at].Clients
		wanted := strings.Trim(meshpolicy.FormatTags(clients.Tags), "{}")
		if clients.Name != "" {
			wanted = strings.TrimSuffix(meshpolicy.ServiceKey+"="+clients.Name+","+wanted, ",")
		}
		notes = append(notes, fmt.Sprintf("policy %s does not apply: it is for clients whose metadata has %s  [%s]",
			p.Name, wanted, strings.TrimPrefix(p.Source.String(), l.content.Dir+"/")))
	}
	return notes
}

// oneOf lists names in order.
func oneOf(names map[string]bool) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}
