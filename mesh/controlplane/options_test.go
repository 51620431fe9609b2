package controlplane_test

import (
	"context"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

func TestOptions_StoreFor(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
		stores := map[string]*controlplane.Store{"a": controlplane.NewStore(), "b": controlplane.NewStore()}
		ended := make(chan string, 1)
		s := startServer(t, controlplane.Options{
			StoreFor: func(ctx context.Context, node *corepb.Node) (*controlplane.Store, error) {
				if node.GetId() == "stranger" {
					return nil, status.Error(codes.PermissionDenied, "who are you?")
				}
				if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("content-type")) == 0 {
					return nil, status.Error(codes.Internal, "the context is not the stream's")
				}
				if node.GetId() == "a" {
					context.AfterFunc(ctx, func() { ended <- "a" })
				}
				return stores[node.GetId()], nil
			},
			Authorize: func(ctx context.Context, _ *corepb.Node, _, _ string) error {
				if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("content-type")) == 0 {
					return status.Error(codes.Internal, "the context is not the stream's")
				}
				return nil
			},
		})
		for id, store := range stores {
			if _, err := store.Update(func(tx *controlplane.Tx) { tx.Set(cluster("of-" + id)) }); err != nil {
				t.Fatal(err)
			}
		}
		s.set(t, cluster("of-all"))
		for node, want := range map[string]string{"a": "of-a", "b": "of-b", "other": "of-all"} {
			c := open(s)
			c.identify(node, cds)
			c.want(cds, want)
			xdstest.NoError(t, c.stream.CloseSend())
		}
		receive(t, ended)
		c := open(s)
		c.identify("stranger", cds)
		if err := c.end(); status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != "who are you?" {
			t.Errorf("the stream ended with %v", err)
		}
	})
}
