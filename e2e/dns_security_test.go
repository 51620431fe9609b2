package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/testutils"
)

// A channel that leaves its security to the control plane goes by DNS only if the
// bootstrap says in so many words that it may.
func TestDNSIsNoFallbackForXDSCredentials(t *testing.T) {
	t.Run("no bootstrap", func(t *testing.T) {
		t.Setenv("GRPC_XDS_BOOTSTRAP", "")
		t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "")
		backend := testutils.StartBackend(t, "dns")
		_, target := inZone(t, backend)
		mustFail(t, dial(t, "xds:///"+target, xdsCreds(t)), "GRPC_XDS_BOOTSTRAP", "credentials/xds", "DNS")
		if n := backend.Count(); n != 0 {
			t.Errorf("%d RPCs went by DNS", n)
		}
	})
	for _, tc := range []struct {
		name string
		opts []testutils.BootstrapOption
		dns  bool
	}{
		{"default", nil, false},
		{"null", []testutils.BootstrapOption{testutils.TopLevel("dns_fallback", nil)}, false},
		{"not_found", []testutils.BootstrapOption{testutils.TopLevel("dns_fallback", "not_found")}, true},
		{"unavailable", []testutils.BootstrapOption{testutils.TopLevel("dns_fallback", "unavailable")}, true},
		{"never", []testutils.BootstrapOption{testutils.TopLevel("dns_fallback", "never")}, false},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m, backend := newMesh(t, failOnDataErrors), testutils.StartBackend(t, "dns")
			_, target := inZone(t, backend)
			m.set(chain(target, toCluster("c"))...)
			m.set(clusterOf("c", testutils.StartBackend(t, "mesh"))...)
			b, err := resolver.NewBuilder(m.bootstrap(tc.opts...))
			xdstest.NoError(t, err)
			// That the control plane no longer has a Listener is known at once.
			had := dial(t, "xds:///"+target, grpc.WithResolvers(b))
			backendFor(testutils.Context(t), t, had, unary)
			m.Delete(t, xdsmsg.ListenerType, target)
			for ctx := testutils.Context(t); err == nil; {
				_, err = call(ctx, had, unary)
			}
			cc := dial(t, "xds:///"+target, grpc.WithResolvers(b), xdsCreds(t))
			if tc.dns {
				mustReach(t, cc, unary, backend)
				return
			}
			texts := []string{"Listener", target}
			if tc.name != "never" {
				texts = append(texts, "credentials/xds", "dns_fallback")
			}
			mustFail(t, cc, texts...)
			if n := backend.Count(); n != 0 {
				t.Errorf("%d RPCs went by DNS", n)
			}
		})
	}
}

// What fails on a channel that DNS resolves says so, and why that is. What a server
// says stays as it is.
func TestErrorsOfAChannelOnDNSSayWhy(t *testing.T) {
	t.Setenv("GRPC_XDS_BOOTSTRAP", "")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "")
	backend := testutils.StartBackend(t, "b1")
	_, target := inZone(t, backend)
	cc := dial(t, "xds:///"+target)
	mustReach(t, cc, unary, backend)
	backend.Fail(status.Error(codes.Unavailable, "not now"))
	for _, k := range kinds {
		_, err := call(testutils.Context(t), cc, k)
		if err == nil || strings.Contains(err.Error(), "DNS") {
			t.Errorf("%s RPC: %v; want what the server said", k, err)
		}
	}
	backend.Fail(nil)

	nobody := testutils.StartBackend(t, "b2")
	_, target = inZone(t, nobody)
	nobody.Stop()
	cc = dial(t, "xds:///"+target)
	for _, k := range kinds {
		_, err := call(testutils.Context(t), cc, k)
		checkStatus(t, err, codes.Unavailable, "connection refused", "DNS", target, "GRPC_XDS_BOOTSTRAP")
		ctx, cancel := context.WithTimeout(testutils.Context(t), 50*time.Millisecond)
		_, err = call(ctx, cc, k, grpc.WaitForReady(true))
		cancel()
		checkStatus(t, err, codes.DeadlineExceeded, "DNS", target, "GRPC_XDS_BOOTSTRAP")
	}
}
