package publish_test

import (
	"testing"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Where documents have authors of their own, a resource that clients would reject is not stored: clients keep what they have,
// and others get an error. Other resources are stored. What is withheld is reported until it is correct, or gone.
func TestWithheld(t *testing.T) {
	t.Parallel()
	store := controlplane.NewStore()
	address := func(r *controlplane.Resource) string {
		var a endpointpb.ClusterLoadAssignment
		xdstest.NoError(t, r.Any().UnmarshalTo(&a))
		return a.GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress().GetAddress()
	}
	publisher := publish.New(store, publish.Options{Check: func(r *controlplane.Resource) (meshroute.Severity, string) {
		if r.Any().GetTypeUrl() == meshroute.EndpointsType && address(r) == "10.0.0.9" {
			return meshroute.Error, "refused"
		}
		return meshroute.Note, ""
	}}, publish.Streams{})
	service := func(name, address string) *meshroute.Service {
		return &meshroute.Service{Name: name, Source: meshroute.Source{File: name}, Endpoints: []meshroute.Endpoint{{Address: address}}}
	}
	endpoint := func(name string) string {
		r, st := store.Choose(meshroute.EndpointsType, name, dynparam.Constraints{})
		switch {
		case st != nil:
			return st.Code().String()
		case r == nil:
			return "nothing"
		}
		return address(r)
	}
	odd := "odd: error: ClusterLoadAssignment odd: refused"
	for _, step := range []struct {
		when      string
		services  []*meshroute.Service
		odd, good string
		reports   []string
	}{
		{"at first", []*meshroute.Service{service("odd", "10.0.0.9:80"), service("good", "10.0.0.1:80")}, "Internal", "10.0.0.1", []string{odd}},
		{"beside a change of another", []*meshroute.Service{service("odd", "10.0.0.9:80"), service("good", "10.0.0.2:80")}, "Internal", "10.0.0.2", []string{odd}},
		{"corrected", []*meshroute.Service{service("odd", "10.0.0.3:80"), service("good", "10.0.0.2:80")}, "10.0.0.3", "10.0.0.2", nil},
		{"with an error again", []*meshroute.Service{service("odd", "10.0.0.9:80"), service("good", "10.0.0.1:80")}, "10.0.0.3", "10.0.0.1", []string{odd}},
		{"invalid as a whole", []*meshroute.Service{service("odd", "10.0.0.1"), service("good", "10.0.0.2:80")}, "nothing", "10.0.0.2",
			[]string{`odd: error: endpoints[0].address: service odd: "10.0.0.1" is not host:port`}},
		{"gone", []*meshroute.Service{service("good", "10.0.0.1:80")}, "nothing", "10.0.0.1", nil},
	} {
		summary, err := publisher.Publish(t.Context(), &folder.Content{Separate: true, Services: step.services})
		xdstest.NoError(t, err)
		if got := endpoint("good"); got != step.good {
			t.Errorf("%s: the other service has %s, want %s", step.when, got, step.good)
		}
		if got := endpoint("odd"); got != step.odd {
			t.Errorf("%s: the service has %s, want %s", step.when, got, step.odd)
		}
		var reports []string
		for _, r := range summary.Reports {
			if !r.LeftOut {
				t.Errorf("%s: %v does not say that something is left out", step.when, r)
			}
			reports = append(reports, r.String())
		}
		xdstest.Equal(t, "reports "+step.when, step.reports, reports)
	}
}
