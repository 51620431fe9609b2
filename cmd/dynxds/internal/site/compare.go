package site

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/meshdiff"
	"github.com/dynxds/dynxds/internal/meshpolicy"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Compare returns what clients get differently of what is read after than of what was read before, Listeners
// first. The lines at which documents stand make no difference. The notes name resources that were not
// compared for all kinds of clients. An error is one of Publish.
func Compare(before, after *folder.Content) (changes []meshdiff.Change, notes []string, err error) {
	var meshes [2]*loaded
	for i, content := range []folder.Content{*before, *after} {
		content.Dir = "" // so that resources do not say where they were written
		if meshes[i], err = loadContent(&content, "", nil); err != nil {
			return nil, nil, err
		}
	}
	changes, notes = compare(meshes[0], meshes[1])
	return changes, notes, nil
}

func compare(before, after *loaded) (changes []meshdiff.Change, notes []string) {
	types := after.types()
	for _, typeURL := range before.types() {
		if !slices.Contains(types, typeURL) {
			types = append(types, typeURL)
		}
	}
	for _, typeURL := range types {
		old, now := before.variants(typeURL), after.variants(typeURL)
		names := maps.Clone(now)
		maps.Copy(names, old)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if maps.EqualFunc(old[name], now[name], variant.equal) {
				continue
			}
			list, all := kinds(old[name], now[name])
			changes = append(changes, changesOf(typeURL, name, before, after, list)...)
			if !all {
				notes = append(notes, fmt.Sprintf("%s %s: compared for %d kinds of clients; more kinds may be affected",
					typeurl.ShortName(typeURL), name, len(list)))
			}
		}
	}
	return changes, notes
}

// variant is one variant of a resource, or the error in its place.
type variant struct {
	version, err string
	// tags are its parameters but for specificity.
	tags map[string]string
}

func (v variant) equal(o variant) bool { return v.version == o.version && v.err == o.err }

// variants returns the variants of a type, by name and the key of their parameters.
func (l *loaded) variants(typeURL string) map[string]map[string]variant {
	all := make(map[string]map[string]variant)
	add := func(name string, parameters dynparam.Parameters, v variant) {
		if all[name] == nil {
			all[name] = make(map[string]variant)
		}
		v.tags = parameters.Map()
		delete(v.tags, meshpolicy.SpecificityKey)
		all[name][parameters.Key()] = v
	}
	for _, r := range l.store.Resources(typeURL) {
		add(r.Name(), r.Parameters(), variant{version: r.Version()})
	}
	for _, r := range l.publisher.Errors(typeURL) {
		add(r.Name, r.Parameters, variant{err: r.Err.String()})
	}
	return all
}

// maxKinds bounds the kinds of clients that one resource is compared for.
const maxKinds = 1 << 13

// kinds returns tags of clients that stand for all: every client is served before and after what a client
// with some of these tags, and no others, is served.
//
// That is a client with the tags of the two variants that the client gets: it matches both, and nothing that
// the client does not match and that could be preferred to them. So the tags of every pair of variants that
// do not contradict each other are enough. If these are more than maxKinds, pairs are left out, and all is false.
func kinds(before, after map[string]variant) (list []map[string]string, all bool) {
	sets := tagSets{seen: make(map[string]bool)}
	sets.add(map[string]string{})
	for _, variants := range []map[string]variant{before, after} {
		for _, v := range variants {
			sets.add(v.tags)
		}
	}
	if maps.EqualFunc(before, after, func(variant, variant) bool { return true }) {
		return sets.list, true // the pairs are of equal tags
	}
	all = sets.addPairs(before, after)
	return sets.list, all
}

// tagSets are sets of tags, each once.
type tagSets struct {
	list []map[string]string
	seen map[string]bool // by meshpolicy.FormatTags
}

// add reports whether the set is new.
func (s *tagSets) add(tags map[string]string) bool {
	key := meshpolicy.FormatTags(tags)
	if s.seen[key] {
		return false
	}
	s.seen[key], s.list = true, append(s.list, tags)
	return true
}

// addPairs adds the tags of every pair of variants that do not contradict each other. It reports false if there are
// more than maxKinds sets.
func (s *tagSets) addPairs(before, after map[string]variant) (all bool) {
	for _, a := range slices.Sorted(maps.Keys(before)) {
		for _, b := range slices.Sorted(maps.Keys(after)) {
			both, ok := union(before[a].tags, after[b].tags)
			if ok && s.add(both) && len(s.list) > maxKinds {
				s.list = s.list[:maxKinds]
				return false
			}
		}
	}
	return true
}

// union returns the tags of both, false if these contradict each other.
func union(a, b map[string]string) (map[string]string, bool) {
	both := maps.Clone(a)
	for key, value := range b {
		if own, ok := a[key]; ok && own != value {
			return nil, false
		}
		if both == nil {
			both = make(map[string]string)
		}
		both[key] = value
	}
	return both, true
}

// changesOf returns the changes of one resource: one for all kinds of clients with the same one.
func changesOf(typeURL, name string, before, after *loaded, kinds []map[string]string) []meshdiff.Change {
	type group struct {
		before, after meshdiff.Version
		clients       []meshdiff.Clients
	}
	groups := make(map[string]*group)
	for _, tags := range kinds {
		node := nodeOf(tags)
		old, oldKey := before.served(typeURL, name, node)
		now, nowKey := after.served(typeURL, name, node)
		key := oldKey + "\x00" + nowKey
		if groups[key] == nil {
			groups[key] = &group{before: old, after: now}
		}
		groups[key].clients = append(groups[key].clients, meshdiff.ClientsOf(tags))
	}
	var changes []meshdiff.Change
	for _, g := range groups {
		c := meshdiff.Resource(typeURL, name, g.before, g.after)
		if c == nil {
			continue
		}
		if len(groups) > 1 {
			c.Clients = g.clients
			slices.SortFunc(c.Clients, meshdiff.Clients.Compare)
		}
		changes = append(changes, *c)
	}
	slices.SortFunc(changes, func(a, b meshdiff.Change) int {
		return slices.CompareFunc(a.Clients, b.Clients, meshdiff.Clients.Compare)
	})
	return changes
}

// served returns what a client gets of a name, and a key that is equal for equal results.
func (l *loaded) served(typeURL, name string, node *corepb.Node) (meshdiff.Version, string) {
	constraints := l.publisher.NodeConstraints(node)
	resource, st := l.store.Choose(typeURL, name, constraints.For(typeURL))
	if resource != nil {
		digest := sha256.Sum256(resource.Any().GetValue())
		return meshdiff.Version{Any: resource.Any()}, string(digest[:])
	}
	return meshdiff.Version{Err: st}, st.String()
}

// nodeOf returns the node of a client that the parameters of a variant describe.
func nodeOf(tags map[string]string) *corepb.Node {
	v := View{Tags: maps.Clone(tags)}
	_, grpc := tags[meshpolicy.RoutesKey]
	_, addresses := tags[meshpolicy.AddressesKey]
	switch {
	case grpc && addresses:
		v.Implementation = meshroute.OtherGRPC
	case grpc:
		v.Implementation = meshroute.GRPCGo
	case addresses:
		v.Implementation = meshroute.Envoy
	}
	delete(v.Tags, meshpolicy.RoutesKey)
	delete(v.Tags, meshpolicy.AddressesKey)
	return v.node()
}
