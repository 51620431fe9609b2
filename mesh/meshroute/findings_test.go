package meshroute

import (
	"testing"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

// An HTTPRoute beside a GRPCRoute for the same clients has no effect. An HTTPRoute for the clients of another namespace has one.
func TestReports_OnDisplacedRoutes(t *testing.T) {
	t.Parallel()
	route := func(kind, name string, clients TargetRef) *Policy {
		return meshpolicy.New(meshpolicy.Policy{
			Kind: kind, Name: name, TargetRef: clients, To: []meshpolicy.To{policytest.To("s", meshpolicy.Rule{BackendRefs: policytest.Send("s")})},
		})
	}
	in := Input{Services: services("s"), Policies: []*Policy{
		route(meshpolicy.HTTPRouteKind, "HTTPRoute/h", TargetRef{}), route(meshpolicy.GRPCRouteKind, "GRPCRoute/g", TargetRef{}),
		route(meshpolicy.HTTPRouteKind, "HTTPRoute/c", TargetRef{Tags: map[string]string{meshpolicy.NamespaceTag: "web"}}),
	}}
	var got []string
	for _, r := range mustBuild(t, in, nil).Reports() {
		got = append(got, r.String())
	}
	displaced := "warning: policy HTTPRoute/h: spec.parentRefs: this has no effect: GRPCRoute/g is for the service s, too, and beside a GRPCRoute no HTTPRoute counts"
	policytest.Equal(t, "reports", []string{displaced}, got)

	// Neither the HTTPRoute without effect, nor the one of other clients, hides a rule of the GRPCRoute.
	everything := policytest.On(policytest.Prefix("/"))
	in.Policies[0].To[0].Rules[0].Matches, in.Policies[2].To[0].Rules[0].Matches = everything, everything
	in.Policies[1].To[0].Rules[0].Matches = policytest.On(policytest.Regex("/x.*"))
	for i, p := range in.Policies {
		in.Policies[i] = meshpolicy.New(*p)
	}
	got = nil
	for _, r := range mustBuild(t, in, nil).Reports() {
		got = append(got, r.String())
	}
	policytest.Equal(t, "reports of expressions", []string{displaced}, got)
}
