package publish_test

import (
	"fmt"
	"slices"
	"testing"

	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/bootstrapfile"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/testutils"
)

// locators returns what clients subscribe to the routes of backend with.
func (v *served) locators() []string {
	var found []string
	for _, client := range v.control.Clients() {
		for _, ts := range client.Types {
			for _, l := range ts.Locators {
				if ts.TypeURL == meshroute.RouteConfigurationType && l.Name == named {
					found = append(found, l.Constraints.String())
				}
			}
		}
	}
	slices.Sort(found)
	return found
}

// Clients of dynxds take their new constraints before a policy with a new tag is published,
// and subscribe with them.
func TestClientsOfDynxdsTakeConstraints(t *testing.T) {
	t.Parallel()
	for name, features := range map[string][]string{"SotW": nil, "delta": {"delta"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v1, v2 := testutils.StartBackend(t, "v1"), testutils.StartBackend(t, "v2")
			s := newSite(t, publish.Options{Authority: "mesh"})
			server := s.serve()
			s.publisher.SetPatience(testTimeout)
			s.change("services.yaml", fmt.Sprintf(`
kind: Service
name: backend
endpoints:
- {address: %q, tags: {version: v1}}
- {address: %q, tags: {version: v2}}
`, v1.Addr(), v2.Addr()), "owner.yaml", policy("owner", "{kind: Mesh}", "v1"))
			call := func(service string) func() string {
				opts := bootstrapfile.Options{
					Servers: []string{server.addr}, Features: features, NodeID: service, Authority: "mesh",
					Metadata: map[string]string{"service": service},
				}
				bootstrap, err := opts.JSON()
				xdstest.NoError(t, err)
				client := testpb.NewTestServiceClient(cmdtest.DialXDS(t, "xds://mesh/backend", bootstrap))
				return func() string {
					t.Helper()
					answer, err := client.UnaryCall(testutils.Context(t), &testpb.SimpleRequest{})
					if err != nil {
						t.Fatalf("an RPC of %s failed: %v", service, err)
					}
					return answer.GetHostname()
				}
			}
			frontend, batch := call("frontend"), call("batch")
			if a, b := frontend(), batch(); a != "v1" || b != "v1" {
				t.Fatalf("answered by %s and %s, want v1", a, b)
			}

			if summary := s.change("consumer.yaml", policy("consumer", "{kind: MeshService, name: frontend}", "v2")); summary.Late != 0 {
				t.Errorf("%d clients were late", summary.Late)
			}
			want := []string{"{service=batch, specificity in [0-]}", "{service=frontend, specificity in [0-]}"}
			xdstest.Equal(t, "what clients subscribe with", want, server.locators())
			for ctx := testutils.Context(t); frontend() != "v2"; {
				if ctx.Err() != nil {
					t.Fatal("no RPC of frontend reaches v2")
				}
				if other := batch(); other != "v1" {
					t.Fatalf("an RPC of batch went to %s, want v1", other)
				}
			}
		})
	}
}
