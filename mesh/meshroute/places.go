package meshroute

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
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
	return p.of(cmp.Or(s.FiltersSource, s.Source))
}

func (p places) tls(s *Service) string {
	if s.TLS == nil {
		return ""
	}
	return p.of(cmp.Or(s.TLS.Source, s.Source))
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

// placeWriter writes the places into the routes to one service.
type placeWriter struct {
	places
	// made has the metadata of routes, which equal ones share.
	made map[string]*corepb.Metadata
}

// configuration returns the routes of a variant with the places of what they are made of, for each kind of clients that get it, the
// most specific one last. Other resources than these do not name policies, and routes name nothing else: they do not change when the
// service moves in its file.
func (w *placeWriter) configuration(plain *routepb.RouteConfiguration, kinds [][]meshpolicy.Route) *routepb.RouteConfiguration {
	host := shallowCopy(plain.GetVirtualHosts()[0])
	host.Routes = nil
	for i, route := range plain.GetVirtualHosts()[0].GetRoutes() {
		var o origins
		for _, made := range slices.Backward(kinds) {
			o.add(made[i])
		}
		placed := shallowCopy(route)
		placed.Metadata = w.metadata(&o)
		host.Routes = append(host.Routes, placed)
	}
	config := shallowCopy(plain)
	config.VirtualHosts = []*routepb.VirtualHost{host}
	return config
}

// origins are the places of the rules that decide the parts of a route. Clients with one variant may be selected by different
// policies with the same result: then each decides for some of them, and all of them are named.
type origins struct {
	matches []Source
	fields  [meshpolicy.NumFields][]Source
}

// add adds the places of what a route is made of.
func (o *origins) add(r meshpolicy.Route) {
	if r.Rule == nil {
		return
	}
	for _, from := range r.Rule.MatchesFrom {
		o.matches = addSource(o.matches, from.MatchSource(r.Index))
	}
	for f, from := range r.Rule.From {
		if from != nil {
			o.fields[f] = addSource(o.fields[f], from.FieldSource(meshpolicy.Field(f)))
		}
	}
}

func addSource(list []Source, s Source) []Source {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// metadata returns the metadata of a route, nil for one that no policy has.
func (w *placeWriter) metadata(o *origins) *corepb.Metadata {
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

func (p places) join(list []Source) string {
	var texts []string
	for _, s := range list[:min(len(list), maxPlaces)] {
		if text := p.of(s); text != "" {
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
