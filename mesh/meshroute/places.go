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

func (p places) listener(s *Service) *corepb.Metadata {
	parts := map[string]string{provenance.Service: p.of(s.Source)}
	if len(s.Filters) > 0 {
		parts[provenance.Filters] = p.of(cmp.Or(s.FiltersSource, s.Source))
	}
	return provenance.Metadata(parts)
}

func (p places) cluster(s *Service) *corepb.Metadata {
	parts := map[string]string{provenance.Service: p.of(s.Source)}
	if s.TLS != nil {
		parts[provenance.TLS] = p.of(cmp.Or(s.TLS.Source, s.Source))
	}
	return provenance.Metadata(parts)
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
		placed := shallowCopy(route)
		placed.Metadata = w.metadata(kinds, i)
		host.Routes = append(host.Routes, placed)
	}
	config := shallowCopy(plain)
	config.VirtualHosts = []*routepb.VirtualHost{host}
	return config
}

// routeParts are the parts of a route: fields and, the last one, matches.
var routeParts = append(meshpolicy.FieldNames[:], provenance.Matches)

// metadata returns the metadata of a route: where the rules are that decide its parts. It is nil for one that no policy has. Clients with one
// variant may be selected by different policies with the same result: then each decides for some of them, and all of them are named.
func (w *placeWriter) metadata(kinds [][]meshpolicy.Route, i int) *corepb.Metadata {
	var sources [meshpolicy.NumFields + 1][]Source // those of the fields, and of the matches
	add := func(part meshpolicy.Field, s Source) {
		if !slices.Contains(sources[part], s) {
			sources[part] = append(sources[part], s)
		}
	}
	for _, made := range slices.Backward(kinds) {
		if made[i].Rule == nil {
			continue
		}
		for _, from := range made[i].Rule.MatchesFrom {
			add(meshpolicy.NumFields, from.MatchSource(made[i].Index))
		}
		for f, from := range made[i].Rule.From {
			if from != nil {
				add(meshpolicy.Field(f), from.FieldSource(meshpolicy.Field(f)))
			}
		}
	}
	parts, key := make(map[string]string, len(sources)), ""
	for f, name := range routeParts {
		parts[name] = w.join(sources[f])
		key += "\n" + parts[name]
	}
	if w.made[key] == nil {
		w.made[key] = provenance.Metadata(parts)
	}
	return w.made[key]
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
