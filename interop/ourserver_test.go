package interop_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// ourServer is the control plane of dynxds, for the clients of others.
type ourServer struct {
	*xdstest.Server
	world
}

func startOurServer(t *testing.T, opts controlplane.Options) *ourServer {
	t.Helper()
	s := &ourServer{
		Server: xdstest.StartServer(t, testutils.ControlPlaneOptions(opts)),
		world:  world{blue: testutils.StartBackend(t, "blue"), green: testutils.StartBackend(t, "green")},
	}
	s.Set(t, s.initial()...)
	return s
}

// bootstrapForOthers has what other clients want of a bootstrap.
func (s *ourServer) bootstrapForOthers() []byte {
	return s.Bootstrap("interop-node", testutils.NodeField("locality", map[string]any{}))
}

// ourOptions are the ways of the control plane that other clients can tell apart.
var ourOptions = map[string]controlplane.Options{
	"as it is":               {},
	"with resources wrapped": {WrapResources: true},
	"with NOT_FOUND errors":  {NotFoundErrors: true},
}

// ourSteps are changes of every type of resource, and who answers after each.
func (s *ourServer) ourSteps() []struct {
	name      string
	change    func(t *testing.T)
	answering string
} {
	set := func(messages ...proto.Message) func(*testing.T) {
		return func(t *testing.T) { t.Helper(); s.Set(t, messages...) }
	}
	return []struct {
		name      string
		change    func(t *testing.T)
		answering string
	}{
		{"nothing", set(), "blue"},
		{"EDS: other endpoints", set(s.endpoints("blue", s.green)), "green"},
		{"EDS: back again", set(s.endpoints("blue", s.blue)), "blue"},
		{"RDS: a new cluster", set(cluster("green", "green"), s.endpoints("green", s.green), routes("routes", "green")), "green"},
		{"CDS: endpoints by another name", set(cluster("green", "blue")), "blue"},
		{"LDS: another RouteConfiguration", set(cluster("green", "green"), routes("more-routes", "green"), listener("more-routes")), "green"},
		{"LDS: routes inline", set(cluster("blue", "blue"), xdsmsg.InlineListener(service, routes("", "blue"))), "blue"},
		{"a restart, with other routes", func(t *testing.T) {
			s.Stop()
			s.Set(t, xdsmsg.InlineListener(service, routes("", "green")))
			xdstest.NoError(t, s.Restart())
		}, "green"},
	}
}

// checkAccepted fails the test if the client rejected anything.
func (s *ourServer) checkAccepted(t *testing.T) {
	t.Helper()
	for _, c := range s.Clients() {
		for _, typ := range c.Types {
			if typ.NACK != nil {
				t.Errorf("%s: the client rejected %s: %v", c.Node.GetUserAgentName(), typ.TypeURL, typ.NACK.Err)
			}
		}
	}
	for _, r := range s.Requests() {
		if r.Err != nil {
			t.Errorf("the client rejected %s: %v", r.TypeURL, r.Err)
		}
	}
}

// TestGRPCGoAgainstOurControlPlane: given our control plane, when gRPC-Go's xds is
// its client, then it accepts everything and follows every change.
func TestGRPCGoAgainstOurControlPlane(t *testing.T) {
	for name, opts := range ourOptions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startOurServer(t, opts)
			b, err := xds.NewXDSResolverWithConfigForTesting(s.bootstrapForOthers())
			xdstest.NoError(t, err)
			client := testpb.NewTestServiceClient(dial(t, b, "xds:///"+service))
			for _, step := range s.ourSteps() {
				step.change(t)
				ctx := testutils.Context(t)
				// It fails RPCs while routes change, which is not what is tested.
				for inARow := 0; inARow < 10; {
					id, err := answeredOnce(ctx, client)
					if ctx.Err() != nil {
						t.Fatalf("after %q: %s answers, error %v; want %s", step.name, id, err, step.answering)
					}
					inARow++
					if id != step.answering {
						inARow = 0
					}
				}
			}
			s.checkAccepted(t)
		})
	}
}

func answeredOnce(ctx context.Context, client testpb.TestServiceClient) (string, error) {
	reply, err := client.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.WaitForReady(false))
	return reply.GetHostname(), err
}
