package site

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// View selects the client and the service to show.
type View struct {
	// Dir is the folder to read; Content is used in its place if the documents have been read already.
	Dir       string
	Content   *folder.Content
	Authority string
	// Tags are those of the client, its service among them.
	Tags map[string]string
	// Implementation is that of the client; the zero value is dynxds.
	Implementation meshroute.Implementation
	// Service limits the view to the resources of a channel to that service; empty means all.
	Service string
}

// client returns the client.
func (v *View) client() meshroute.Client {
	c := meshroute.Client{Service: v.Tags[meshpolicy.ServiceKey], Tags: maps.Clone(v.Tags), Implementation: v.Implementation}
	maps.DeleteFunc(c.Tags, func(key, value string) bool { return key == meshpolicy.ServiceKey || value == "" })
	return c
}

// Item is one resource that a client gets, with its dynamic parameters, or the error in its place.
type Item struct {
	TypeURL, Name string
	Parameters    map[string]string
	Resource      *controlplane.Resource
	Err           *status.Status
}

// Resources returns what the client would get from a server of the folder, by the server's own choice:
// Listeners, routes, clusters, endpoints, others, each by name.
func Resources(v View) ([]Item, error) {
	loaded, err := loadView(v)
	if err != nil {
		return nil, err
	}
	items := loaded.items(v)
	if v.Service == "" {
		return items, nil
	}
	return reachable(items, loaded.publisher.Mesh().ListenerName(v.Service)), nil
}

// items returns what the client gets, in the order of loaded.all.
func (l *loaded) items(v View) (items []Item) {
	constraints := l.publisher.Constraints(v.client())
	for i, one := range l.all {
		// With an authority every resource has two names.
		if i > 0 && one.TypeURL == l.all[i-1].TypeURL && one.Name == l.all[i-1].Name || v.Authority != "" && !strings.HasPrefix(one.Name, xdsname.Prefix) {
			continue
		}
		switch resource, st := l.store.Choose(one.TypeURL, one.Name, constraints.For(one.TypeURL)); {
		case resource != nil:
			items = append(items, Item{one.TypeURL, one.Name, resource.Parameters().Map(), resource, st})
		case st != nil:
			items = append(items, Item{TypeURL: one.TypeURL, Name: one.Name, Err: st})
		}
	}
	return items
}

// Explain writes the merged policies for the client's requests, service by service.
func Explain(w io.Writer, v View) error {
	loaded, err := loadView(v)
	if err != nil {
		return err
	}
	mesh, client := loaded.publisher.Mesh(), v.client()
	for _, service := range servicesOf(loaded.content) {
		if v.Service != "" && v.Service != service {
			continue
		}
		merged, _ := mesh.Merged(client, service)
		text := strings.TrimSuffix(merged.String(), "\n")
		if _, err := fmt.Fprintf(w, "%s to %s\n  %s\n", client, service, strings.ReplaceAll(text, "\n", "\n  ")); err != nil {
			return err
		}
	}
	return nil
}

// loadView loads what a view is of, which must have the service of the view.
func loadView(v View) (*loaded, error) {
	content := v.Content
	if content == nil {
		var err error
		if content, err = folder.New(v.Dir).Settled(context.Background()); err != nil { // which takes ten seconds at most
			return nil, err
		}
	}
	l, err := loadContent(content, publish.Options{Authority: v.Authority})
	if err != nil {
		return nil, err
	}
	return l, l.checkService(v.Service)
}

// checkService returns an error for a service that the folder does not have. An empty name means all.
func (l *loaded) checkService(service string) error {
	services := servicesOf(l.content)
	if service == "" || slices.Contains(services, service) {
		return nil
	}
	if other := similar(service, services); other != "" {
		return fmt.Errorf("there is no service %q; did you mean %q?", service, other)
	}
	const most = 20
	return fmt.Errorf("there is no service %q; there are %s", service, cmp.Or(faults.Few(services, most, ", "), "none"))
}

// Services returns the names of the services of a folder, none if it cannot be read: it is for the completion of
// command lines.
func Services(dir string) []string {
	content, err := folder.New(dir).Read()
	if err != nil {
		return nil
	}
	return servicesOf(content)
}

// servicesOf returns the names of the services in order.
func servicesOf(content *folder.Content) []string {
	var names []string
	for _, s := range content.Services {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}
