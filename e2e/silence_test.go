package e2e_test

import (
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

// silences are the ways of a control plane not to answer for a Listener. Each returns how it ends, nil if it
// does not.
var silences = map[string]func(m *mesh) (end func()){
	"mute": func(m *mesh) func() { return m.StallSends() },
	"answers for another type": func(m *mesh) func() {
		m.OnResponse(func(_ uint64, r *discoverypb.DiscoveryResponse) *discoverypb.DiscoveryResponse {
			return &discoverypb.DiscoveryResponse{TypeUrl: typeurl.Cluster, VersionInfo: r.GetVersionInfo(), Nonce: r.GetNonce()}
		})
		m.OnDeltaResponse(func(_ uint64, r *discoverypb.DeltaDiscoveryResponse) *discoverypb.DeltaDiscoveryResponse {
			return &discoverypb.DeltaDiscoveryResponse{TypeUrl: typeurl.Cluster, Nonce: r.GetNonce()}
		})
		return nil
	},
	"says nothing of what it lacks": func(m *mesh) func() {
		m.OnResponse(func(uint64, *discoverypb.DiscoveryResponse) *discoverypb.DiscoveryResponse { return nil })
		m.OnDeltaResponse(func(uint64, *discoverypb.DeltaDiscoveryResponse) *discoverypb.DeltaDiscoveryResponse { return nil })
		return nil
	},
}

// RPCs do not go around the mesh because its control plane does not answer. They fail until it does.
func TestSilentControlPlaneIsNoReasonForDNS(t *testing.T) {
	everyWay(t)
	for name, silence := range silences {
		xdstest.Parallel(t, name, func(t *testing.T) {
			m := newMesh(t)
			byDNS, mesh := testutils.StartBackend(t, "dns"), testutils.StartBackend(t, "mesh")
			_, target := inZone(t, byDNS)
			m.serve(target, "cluster", mesh)
			end := silence(m)
			cc := m.dial("xds:///" + target)
			mustStayOffDNS(t, cc, target, byDNS)
			if end == nil {
				return
			}
			end()
			untilReached(t, cc, mesh)
			if n := byDNS.Count(); n > 0 {
				t.Errorf("%d RPCs went by DNS", n)
			}
		})
	}
	// A proxy whose HTTP/2 handshake works, and that sends nothing else.
	xdstest.Parallel(t, "proxy that sends its settings", func(t *testing.T) {
		directly(t, "the proxy takes the place of the relay")
		byDNS := testutils.StartBackend(t, "dns")
		_, target := inZone(t, byDNS)
		var features []string
		if protocol != "" {
			features = append(features, protocol)
		}
		cc := dialWith(t, "xds:///"+target, testutils.Bootstrap(t.Name(), settingsOnly(t), testutils.ServerFeatures(features...)))
		mustStayOffDNS(t, cc, target, byDNS)
	})
}

// mustStayOffDNS checks that the first RPC fails when the resource timer has run out.
func mustStayOffDNS(t *testing.T, cc *grpc.ClientConn, target string, byDNS *testutils.Backend) {
	t.Helper()
	mustFail(t, cc, "Listener", target, "did not send it within 15s")
	if got := statusOf(t, "xds:///"+target); got.Mode != dynxds.ModeUndecided {
		t.Errorf("mode %v, %q", got.Mode, got.Reason)
	}
	if n := byDNS.Count(); n > 0 {
		t.Errorf("%d RPCs went by DNS", n)
	}
}

// settingsOnly is the address of a server that answers a client's HTTP/2 preface and reads the rest.
func settingsOnly(t *testing.T) (addr string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				framer := http2.NewFramer(conn, conn)
				if framer.WriteSettings() == nil && framer.WriteSettingsAck() == nil {
					_, _ = io.Copy(io.Discard, conn)
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// A bootstrap can say that a control plane never says that it lacks a Listener.
func TestDNSForAControlPlaneThatNeverSaysWhatItLacks(t *testing.T) {
	xdstest.Parallel(t, "silent", func(t *testing.T) {
		m := newMesh(t)
		byDNS, mesh := testutils.StartBackend(t, "dns"), testutils.StartBackend(t, "mesh")
		_, target := inZone(t, byDNS)
		m.serve(target, "cluster", mesh)
		end := m.StallSends()
		cc := dialWith(t, "xds:///"+target, m.bootstrap(dnsFallback("timeout")))
		mustReach(t, cc, unary, byDNS)
		end()
		untilReached(t, cc, mesh)
	})
	xdstest.Parallel(t, "but not if it is unreachable", func(t *testing.T) {
		directly(t, "the relay stays reachable")
		m, byDNS := newMesh(t), testutils.StartBackend(t, "dns")
		m.Stop()
		_, target := inZone(t, byDNS)
		mustFail(t, dialWith(t, "xds:///"+target, m.bootstrap(dnsFallback("timeout"))), "connection refused")
	})
}

// A SotW server without resource errors (xRFC TP3) says by its full state that it lacks a Listener.
func TestDNSAfterAFullStateWithoutTheListener(t *testing.T) {
	everyWay(t)
	t.Parallel()
	if protocol != "" || downstream != nil {
		t.Skip("over SotW only")
	}
	m := newMesh(t)
	m.OnResponse(func(_ uint64, r *discoverypb.DiscoveryResponse) *discoverypb.DiscoveryResponse {
		r.ResourceErrors = nil
		return r
	})
	one, two := testutils.StartBackend(t, "dns-1"), testutils.StartBackend(t, "dns-2")
	_, first := inZone(t, one)
	_, second := inZone(t, two)
	resolver := withBootstrap(t, m.bootstrap())
	ctx, results := testutils.Context(t), make(chan [2]string, 2)
	for target, backend := range map[string]*testutils.Backend{first: one, second: two} {
		cc := dial(t, "xds:///"+target, resolver)
		go func() {
			id, err := call(ctx, cc, unary)
			if err != nil {
				id = err.Error()
			}
			results <- [2]string{backend.ID(), id}
		}()
	}
	for range 2 {
		if got := <-results; got[0] != got[1] {
			t.Errorf("an RPC for %s got %s", got[0], got[1])
		}
	}
}
