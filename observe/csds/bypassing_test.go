package csds_test

import (
	"testing"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/observe/csds"
	"github.com/dynxds/dynxds/testutils"
)

// A channel that DNS resolves for want of a bootstrap has no client, and is a problem all the same: one without a node.
func TestChannelsWithoutABootstrap(t *testing.T) {
	t.Parallel()
	service := serve(t)
	target := "passthrough:///127.0.0.1:1/" + t.Name()
	state := func() *structpb.Struct {
		for _, c := range fetch(t, service, &statusv3.ClientStatusRequest{}).GetConfig() {
			if c.GetNode() != nil {
				continue
			}
			xdstest.Equal(t, "scope", target, c.GetClientScope())
			entries := c.GetGenericXdsConfigs()
			if len(entries) != 1 || entries[0].GetName() != csds.StateName {
				t.Fatalf("the entries are %v", entries)
			}
			values := new(structpb.Struct)
			xdstest.NoError(t, entries[0].GetXdsConfig().UnmarshalTo(values))
			return values
		}
		return nil
	}
	cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	xdstest.NoError(t, err)
	defer cc.Close()
	channels.RecordOf(cc).SetMode(channels.DNS, "no bootstrap")
	if got := state(); got != nil {
		t.Errorf("an idle channel is told: %v", got)
	}
	cc.Connect()
	if !cc.WaitForStateChange(testutils.Context(t), connectivity.Idle) {
		t.Fatal("the channel does not connect")
	}
	got := state().AsMap()
	problems, _ := got["problems"].([]any)
	if len(problems) != 1 {
		t.Fatalf("the state is %v, want one problem", got)
	}
	problem, _ := problems[0].(map[string]any)
	xdstest.Equal(t, "severity", "degraded", problem["severity"])
	xdstest.Equal(t, "text", "resolved by DNS, so that its RPCs go around the mesh: no bootstrap", problem["text"])
	cc.Close()
	if got := state(); got != nil {
		t.Errorf("a closed channel is told: %v", got)
	}
}
