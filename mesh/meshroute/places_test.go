package meshroute

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

// withoutMetadata removes the metadata of a message and of the messages in it.
func withoutMetadata(m proto.Message) proto.Message {
	m = proto.Clone(m)
	clearMetadata(m.ProtoReflect())
	return m
}

func clearMetadata(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Name() == "metadata":
			m.Clear(f)
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				clearMetadata(v.List().Get(i).Message())
			}
		default:
			clearMetadata(v.Message())
		}
		return true
	})
}

// give gives each rule lines of its own.
func give(policies []*Policy, first int) {
	line := first
	for _, p := range policies {
		for i := range p.To {
			for j := range p.To[i].Rules {
				r := &p.To[i].Rules[j]
				r.Line = line
				for f := range r.Lines {
					r.Lines[f] = line + 1 + f
				}
				line += 1 + len(r.Lines)
				for k := range r.Matches {
					r.Matches[k].Line = line
					line++
				}
			}
		}
	}
}

// The property that places are for: whatever the policies, a variant names exactly the rules that
// decide for the clients that get it, and with places it is otherwise the variant without.
func TestPlaces_OfTheRulesThatDecide(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	shared := 0
	for range 60 {
		in := randomInput(r)
		give(in.Policies, 1)
		plain := mustBuild(t, in, nil)
		in.SourceDir = "."
		m := mustBuild(t, in, nil)
		for i, of := range m.Resources() {
			without := plain.Resources()[i]
			if of.Key() != without.Key() || (of.Message == nil) != (without.Message == nil) ||
				of.Message != nil && !proto.Equal(withoutMetadata(of.Message), without.Message) {
				t.Fatalf("with places there is %v, without %v", of, without)
			}
		}
		for _, s := range in.Services {
			name := func(variant *Resource, route int) string {
				return fmt.Sprint("route ", route, " of ", s.Name, " ", variant.Parameters)
			}
			want := make(map[string]map[string]bool) // of a route, by its name: "part=place"
			for _, c := range policytest.Clients() {
				variant := m.Routes(c, s.Name)
				if variant.Err != nil {
					continue
				}
				for i, parts := range decidedFor(in, c, s) {
					route := name(variant, i)
					if want[route] == nil {
						want[route] = make(map[string]bool)
					}
					for part, places := range parts {
						for _, place := range places {
							want[route][part+"="+place.String()] = true
						}
					}
				}
			}
			for _, variant := range routesOf(m, s.Name) {
				if variant.Err != nil {
					continue
				}
				for i, r := range variant.Message.(*routepb.RouteConfiguration).GetVirtualHosts()[0].GetRoutes() {
					route, got := name(variant, i), make(map[string]bool)
					for part, text := range provenance.Of(r.GetMetadata()) {
						places := strings.Split(text, ", ")
						for _, place := range places {
							got[part+"="+place] = true
						}
						if part == provenance.Filters && len(places) > 1 {
							shared++
						}
					}
					xdstest.Equal(t, "places of "+route, want[route], got)
					if t.Failed() {
						t.FailNow()
					}
				}
			}
		}
	}
	if shared == 0 {
		t.Error("no variant is shared by clients whose filters are decided by different rules")
	}
}

// decidedFor merges the policies for one client, and returns the places of the parts of each route.
func decidedFor(in Input, c Client, s *Service) []map[string][]Source {
	_, made := tableOf(in, s.Name, c).configuration(policytest.Merge(in.Policies, c, s.Name))
	var all []map[string][]Source
	for _, route := range made {
		parts := make(map[string][]Source)
		if r := route.Rule; r != nil {
			for _, o := range r.MatchesFrom {
				parts[provenance.Matches] = append(parts[provenance.Matches], o.MatchSource(route.Index))
			}
			for f, name := range meshpolicy.FieldNames {
				if f := meshpolicy.Field(f); r.Has(f) {
					parts[name] = []Source{r.From[f].FieldSource(f)}
				}
			}
		}
		all = append(all, parts)
	}
	return all
}
