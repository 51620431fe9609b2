package meshroute

import (
	"fmt"
	"path/filepath"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// places writes where the parts of resources stand, below Input.SourceDir.
type places struct{ dir string }

func newPlaces(dir string) places {
	if dir == "" {
		return places{}
	}
	return places{filepath.Clean(dir)}
}

// of returns "file:line" relative to the directory, or "" if it is not known. Of a file elsewhere it has
// only the last element: the paths of the control plane are not for clients.
func (p places) of(s Source) string {
	if p.dir == "" || s.File == "" {
		return ""
	}
	rel, err := filepath.Rel(p.dir, s.File)
	if err != nil || !filepath.IsLocal(rel) {
		rel = filepath.Base(s.File)
	}
	s.File = filepath.ToSlash(rel)
	return s.String()
}

func (p places) filters(s *Service) string {
	if len(s.Filters) == 0 {
		return ""
	}
	return p.of(s.orAbove(s.FiltersSource))
}

func (p places) tls(s *Service) string {
	if s.TLS == nil {
		return ""
	}
	return p.of(s.orAbove(s.TLS.Source))
}

// orAbove returns the place of a part, or else that of the service.
func (s *Service) orAbove(part Source) Source {
	if part == (Source{}) {
		return s.Source
	}
	return part
}

func (p places) listener(s *Service) *corepb.Metadata {
	return provenance.Metadata(map[string]string{provenance.Service: p.of(s.Source), provenance.Filters: p.filters(s)})
}

func (p places) cluster(s *Service) *corepb.Metadata {
	return provenance.Metadata(map[string]string{provenance.Service: p.of(s.Source), provenance.TLS: p.tls(s)})
}

func (p places) endpoint(e *Endpoint) *corepb.Metadata {
	return provenance.Metadata(map[string]string{provenance.Endpoint: p.of(e.Source)})
}

// placedRoutes are the variants of a RouteConfiguration, or the errors in their place, with the places of
// their parts.
type placedRoutes struct {
	list []*Resource
	// from has the resources in list by those without places.
	from map[*Resource]*Resource
}

// of returns the resource with places for one without.
func (p *placedRoutes) of(r *Resource) *Resource {
	if p == nil {
		return r
	}
	return p.from[r]
}

// place adds the places to the routes to a service, or reuses those of the previous mesh. Other resources
// than these do not name policies, and routes name nothing else: they do not change when the service
// moves in its file.
func (b *builder) place(d *destination, name string) *destination {
	if b.mesh.places.dir == "" || len(d.parts) == 0 {
		return d
	}
	if b.previous != nil {
		old := b.previous.destinations[name]
		if old != nil && old.compiled == d.compiled && old.placed != nil && samePlaces(old.parts, d.parts) {
			d.placed = old.placed
			return d
		}
	}
	d.placed = &placedRoutes{from: make(map[*Resource]*Resource, len(d.variants.list))}
	w := newPlaceWriter(b.mesh.places, d.parts)
	for i, r := range d.variants.list {
		placed := r
		if r.Err == nil {
			copied := *r
			copied.Message = w.configuration(d.variants.all[i])
			placed = &copied
		}
		d.placed.list = append(d.placed.list, placed)
		d.placed.from[r] = placed
	}
	return d
}

// placeWriter writes the places into the routes to one service.
type placeWriter struct {
	places places
	// parts are those of policies, and holding their indexes by the tags of their clients.
	parts   []meshpolicy.Part
	holding tagIndex[int]
	// made has the metadata of routes, which equal ones share.
	made map[string]*corepb.Metadata
}

// configuration returns the routes of a variant with their places.
func (w *placeWriter) configuration(v *variant) *routepb.RouteConfiguration {
	plain := v.outcome.routes
	host := shallowCopy(plain.GetVirtualHosts()[0])
	host.Routes = nil
	parts := w.decidingFor(v.kinds)
	for i, route := range plain.GetVirtualHosts()[0].GetRoutes() {
		placed := shallowCopy(route)
		placed.Metadata = w.metadata(parts.of(v.outcome.rules[i]))
		host.Routes = append(host.Routes, placed)
	}
	config := shallowCopy(plain)
	config.VirtualHosts = []*routepb.VirtualHost{host}
	return config
}

// metadata returns the metadata of a route, nil for one that no policy has.
func (w *placeWriter) metadata(o origins) *corepb.Metadata {
	parts := map[string]string{provenance.Matches: w.join(o.matches)}
	key := parts[provenance.Matches]
	for f, name := range meshpolicy.FieldNames {
		parts[name] = w.join(o.fields[f])
		key += "\n" + parts[name]
	}
	if m, ok := w.made[key]; ok {
		return m
	}
	m := provenance.Metadata(parts)
	w.made[key] = m
	return m
}

// maxPlaces bounds the places of one part.
const maxPlaces = 16

func (w *placeWriter) join(list []Source) string {
	var texts []string
	for _, s := range list[:min(len(list), maxPlaces)] {
		if text := w.places.of(s); text != "" {
			texts = append(texts, text)
		}
	}
	if more := len(list) - maxPlaces; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}

// shallowCopy copies a message, but shares with it the messages inside.
func shallowCopy[M proto.Message](m M) M {
	to := m.ProtoReflect().New()
	m.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		to.Set(field, value)
		return true
	})
	return to.Interface().(M)
}
