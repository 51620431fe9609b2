// Package servetest checks the services of package serve other than ADS, for the tests of that package
// and of the command.
package servetest

import (
	"testing"

	"google.golang.org/grpc"
	channelzpb "google.golang.org/grpc/channelz/grpc_channelz_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/serve"
	"github.com/dynxds/dynxds/testutils"
)

// CheckTools checks reflection and channelz.
func CheckTools(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	ctx := testutils.Context(t)
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	list := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
	if err := stream.Send(list); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	services := map[string]bool{}
	for _, s := range answer.GetListServicesResponse().GetService() {
		services[s.GetName()] = true
	}
	for _, want := range []string{serve.ADSService, "grpc.health.v1.Health", "grpc.channelz.v1.Channelz"} {
		if !services[want] {
			t.Errorf("reflection does not know %s; it has %v", want, services)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	servers, err := channelzpb.NewChannelzClient(conn).GetServers(ctx, &channelzpb.GetServersRequest{})
	if err != nil || len(servers.GetServer()) == 0 {
		t.Errorf("channelz shows servers %v, %v, want this one", servers, err)
	}
}
