package xdsclient

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
)

var errTest = errors.New("test")

// A program may set another limit than the client's.
func TestMessageSizeLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, server := newTestTypes(), newScript(t)
		c, err := New(parseBootstrap(t, "passthrough:///script"), WithDialOptions(
			grpc.WithContextDialer(server.dial), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1000))))
		xdstest.NoError(t, err)
		t.Cleanup(c.Close)
		a, _ := listen(t, c, types.clusters, "a")
		s := server.asked()
		s.send(types.clusters, "1", "n1", &anypb.Any{TypeUrl: types.clusters.TypeURL, Value: make([]byte, 1000)})
		if err := a.fault(KindUnreachable); !strings.Contains(err.Error(), "ResourceExhausted") {
			t.Errorf("got %v, want RESOURCE_EXHAUSTED", err)
		}
	})
}
