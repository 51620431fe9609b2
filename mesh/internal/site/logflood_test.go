package site_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/testutils"
)

// A host whose clients invent nodes, types and reasons, of any length, makes few and short lines.
func TestLogOfHostileClients(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long ", 200_000)
	for name, attack := range map[string]func(i int) []*discoverypb.DiscoveryRequest{
		"nodes of 1 MB": func(i int) []*discoverypb.DiscoveryRequest {
			return []*discoverypb.DiscoveryRequest{{Node: &corepb.Node{Id: fmt.Sprint(i, long)}, TypeUrl: meshroute.ClusterType}}
		},
		"nodes": func(i int) []*discoverypb.DiscoveryRequest {
			return []*discoverypb.DiscoveryRequest{{Node: &corepb.Node{Id: fmt.Sprint("node ", i)}, TypeUrl: meshroute.ClusterType}}
		},
		"NACKs of 1 MB": func(i int) (list []*discoverypb.DiscoveryRequest) {
			for j := range 2 {
				r := &discoverypb.DiscoveryRequest{Node: &corepb.Node{Id: fmt.Sprint("nacks ", i)}, TypeUrl: meshroute.ClusterType}
				if j > 0 {
					r.ErrorDetail = status.New(codes.InvalidArgument, fmt.Sprint("\x1b[31m", i, j, long)).Proto()
				}
				list = append(list, r)
			}
			return list
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMesh(t)
			r := start(t, "", map[string]string{"services.yaml": m.services()})
			conn := cmdtest.Dial(t, r.addr)
			const streams = 150
			for i := range streams {
				ctx, cancel := context.WithCancel(testutils.Context(t))
				stream, err := discoverypb.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
				if err != nil {
					t.Fatal(err)
				}
				nonce := ""
				for _, request := range attack(i) {
					request.ResponseNonce = nonce
					if stream.Send(request) != nil {
						break // the server may refuse it
					}
					if nonce == "" {
						resp, _ := stream.Recv()
						nonce = resp.GetNonce()
					}
				}
				if err := stream.CloseSend(); err != nil {
					t.Error(err)
				}
				for err == nil { // until the server has ended the stream, and said so
					_, err = stream.Recv()
				}
				cancel()
			}
			log := r.log.String()
			lines := strings.Count(log, "\n")
			t.Logf("%d lines, %d bytes", lines, len(log))
			if most := 200; lines > most || len(log) > most*bounds.LogText {
				t.Errorf("%d lines of %d bytes", lines, len(log))
			}
			if strings.Contains(log, "\x1b") {
				t.Error("the log has an escape sequence")
			}
		})
	}
}
