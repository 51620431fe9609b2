package controlplane_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Identify decides which node a client is, before anything else is decided by the node; its error ends the stream.
func TestOptions_Identify(t *testing.T) {
	t.Parallel()
	decided := make(chan string, 10)
	s := startServer(t, controlplane.Options{
		Identify: func(_ context.Context, node *corepb.Node) (*corepb.Node, time.Time, error) {
			if node.GetId() == "stranger" {
				return nil, time.Time{}, status.Error(codes.PermissionDenied, "who are you?")
			}
			return &corepb.Node{Id: "verified"}, time.Time{}, nil
		},
		NodeConstraints: func(node *corepb.Node) dynparam.ByType {
			decided <- node.GetId()
			return dynparam.ByType{}
		},
	})
	ask := func(id string) error {
		c := s.openDelta(t)
		c.identify(id, eds, "a")
		_, err := c.receive()
		return err
	}
	if err := ask("stranger"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a stranger got %v", err)
	}
	xdstest.NoError(t, ask("friend"))
	xdstest.Equal(t, "node that decides", "verified", <-decided)
	select {
	case id := <-decided:
		t.Errorf("something was decided for %q", id)
	default:
	}
}

// deletedPod is an Identify that knows a client for no time at all, which is a second.
func deletedPod(calls *atomic.Int64) func(context.Context, *corepb.Node) (*corepb.Node, time.Time, error) {
	return func(_ context.Context, node *corepb.Node) (*corepb.Node, time.Time, error) {
		if calls.Add(1) == 3 {
			return nil, time.Time{}, status.Error(codes.Unauthenticated, "the pod is deleted")
		}
		return node, time.Now(), nil
	}
}

// Identify is called again when what it said holds no longer, and ends the stream once it has an error.
func TestOptions_IdentifyAgain(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	c, began := startServer(t, controlplane.Options{Identify: deletedPod(&calls)}).openDelta(t), time.Now()
	c.subscribe(eds, "a")
	xdstest.Equal(t, "code", codes.Unauthenticated, status.Code(c.end()))
	xdstest.Equal(t, "calls", int64(3), calls.Load())
	xdstest.Equal(t, "calls a second apart", true, time.Since(began) >= 2*time.Second)
}

// So it is for the streams of load reports.
func TestLoadStreamsAreIdentifiedAgain(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	client := newLoadWorld(t, controlplane.LoadOptions{Identify: deletedPod(&calls)}).join()
	_, err := client.stream.Recv()
	xdstest.Equal(t, "code", codes.Unauthenticated, status.Code(err))
	xdstest.Equal(t, "calls", int64(3), calls.Load())
}
