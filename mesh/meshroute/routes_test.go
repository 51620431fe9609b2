package meshroute

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

// fits implements the matches of the decision record, and nothing else.
func fits(m *meshpolicy.Match, path string, headers metadata.MD) bool {
	switch {
	case m.Path == (meshpolicy.PathMatch{}):
	case m.Path.Type == meshpolicy.Exact:
		if path != m.Path.Value {
			return false
		}
	case m.Path.Type == meshpolicy.Prefix:
		covered, all := segments(m.Path.Value), segments(path)
		if len(covered) > len(all) || !slices.Equal(covered, all[:len(covered)]) {
			return false
		}
	default:
		if !regexp.MustCompile("^(?:" + m.Path.Value + ")$").MatchString(path) {
			return false
		}
	}
	if len(m.Methods) > 0 && !slices.Contains(m.Methods, "POST") || len(m.Query) > 0 {
		return false
	}
	for _, h := range m.Headers {
		value, there := strings.Join(headers[h.Name], ","), len(headers[h.Name]) > 0
		ok := map[string]bool{
			meshpolicy.Exact: there && value == h.Value, meshpolicy.Prefix: there && strings.HasPrefix(value, h.Value), meshpolicy.Present: there, meshpolicy.Absent: !there,
			meshpolicy.RegularExpression: there && h.Type == meshpolicy.RegularExpression && regexp.MustCompile("^(?:"+h.Value+")$").MatchString(value),
		}[h.Type]
		if !ok {
			return false
		}
	}
	return true
}

// The property that translation is for: an RPC takes the rule that the record and the
// precedence determine, also by the routes for clients of other implementations.
func TestRoutes_AnRPCMeetsItsRule(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	paths := []string{"/p.S/M", "/p.S/N", "/p.S", "/p.S/", "/p.ST/M", "/p/S", "/p", "/q/r", "/x/y", "/p.S/M/more"}
	hits := make(map[string]int)
	for range 150 {
		in := Input{Services: services("s")}
		rules := policytest.Rules(r, 1+r.IntN(6))
		for i := range rules {
			rules[i].BackendRefs = policytest.Send(fmt.Sprintf("b%d", i))
			in.Services = append(in.Services, service(rules[i].BackendRefs[0].Name))
		}
		in.Policies = []*Policy{policytest.New("p", TargetRef{}, policytest.To("s", rules...))}
		m := mustBuild(t, in, nil)
		host, other := hostFor(t, m.Routes(Client{}, "s")), hostFor(t, m.Routes(Client{Implementation: OtherGRPC}, "s"))
		merged, _ := m.Merged(Client{}, "s")
		for range 30 {
			path, md := policytest.Pick(r, paths), metadata.MD{}
			for _, name := range []string{"h", "i"} {
				if r.IntN(2) == 0 {
					md[name] = []string{policytest.Pick(r, []string{"x", "xy", "z"})}
				}
			}
			want := "s"
			for _, route := range merged.Routes() {
				if fits(route.Match, path, md) {
					if route.Rule != nil {
						want = route.Rule.BackendRefs[0].Name
					}
					break
				}
			}
			for _, host := range []*xdsresource.VirtualHost{host, other} {
				got := clusterOf(t, host.Route(matching.RPC{Method: path, Context: metadata.NewOutgoingContext(t.Context(), md)}))
				if got != want {
					t.Fatalf("an RPC for %s with %v goes to %s, want %s, by\n%v", path, md, got, want, merged)
				}
			}
			hits[want]++
		}
	}
	if len(hits) < 5 || hits["s"] == 0 {
		t.Errorf("the rules were hit like this, which is too few: %v", hits)
	}
}
