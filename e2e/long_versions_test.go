package e2e_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

// A version of 5 MB is longer than the requests that servers commonly accept (4 MiB). It is accepted as any, and not sent
// back: neither the ACK nor the first request of the next stream ends a stream, of a client or of a relay.
func TestVersionOfFiveMegabytes(t *testing.T) {
	everyWay(t)
	overLinks(t, func(t *testing.T) {
		m := newMesh(t)
		long := strings.Repeat("v", 5_000_000)
		m.OnResponse(func(_ uint64, resp *discoverypb.DiscoveryResponse) *discoverypb.DiscoveryResponse {
			if resp.GetTypeUrl() == typeurl.RouteConfiguration {
				resp.VersionInfo = long
			}
			return resp
		})
		m.OnDeltaResponse(func(_ uint64, resp *discoverypb.DeltaDiscoveryResponse) *discoverypb.DeltaDiscoveryResponse {
			if resp.GetTypeUrl() == typeurl.RouteConfiguration {
				resp.SystemVersionInfo = long
				for _, r := range resp.GetResources() {
					r.Version = long
				}
			}
			return resp
		})
		old, next := testutils.StartBackend(t, "old"), testutils.StartBackend(t, "next")
		m.serve(service, "old", old)
		load := loadOn(t, m.dial("xds:///"+service), old)
		ctx := testutils.Context(t)
		m.MustWait(ctx, t, xdstest.ACKOf(typeurl.RouteConfiguration))
		if n := m.Attempts(); n != 1 {
			t.Errorf("%d streams were opened, want one", n)
		}

		m.OnResponse(nil)
		m.OnDeltaResponse(nil)
		m.BreakStreams(status.Error(codes.Unavailable, "restart"))
		xdstest.NoError(t, m.WaitAttempts(ctx, 2))
		m.set(xdsmsg.RouteConfig(service, service, toCluster("next")), clusterOf("next", next))
		load.await(t, next)
		load.stop(t)
		if n := m.Attempts(); n != 2 {
			t.Errorf("%d streams were opened, want one after the end of the first", n)
		}
	})
}
