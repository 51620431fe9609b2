package e2e_test

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// put makes data the content of a file at once.
func put(t *testing.T, file string, data []byte) {
	t.Helper()
	next := file + ".next"
	xdstest.NoError(t, os.WriteFile(next, data, 0o600))
	xdstest.NoError(t, os.Rename(next, file))
}

// A channel that was opened before there was a bootstrap that can be used is served as
// soon as there is one, new or corrected.
func TestABootstrapThatComesLater(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before string // the content of the file; empty: there is none
		texts  []string
		opts   func(t *testing.T) []grpc.DialOption
	}{
		{"no file", "", []string{"bootstrap.json", "GRPC_XDS_BOOTSTRAP"}, nil},
		{"faulty file", `{"xds_servers": []}`, []string{"bootstrap.json", "xds_servers"}, nil},
		{"DialOptions", "", []string{"bootstrap.json"}, func(*testing.T) []grpc.DialOption { return dynxds.DialOptions() }},
		{"credentials/xds", "", []string{"bootstrap.json"}, func(t *testing.T) []grpc.DialOption { return []grpc.DialOption{xdsCreds(t)} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b1")
			m.serve(service, "c", backend)
			file := filepath.Join(t.TempDir(), "bootstrap.json")
			if tc.before != "" {
				put(t, file, []byte(tc.before))
			}
			t.Setenv("GRPC_XDS_BOOTSTRAP", file)
			var opts []grpc.DialOption
			if tc.opts != nil {
				opts = tc.opts(t)
			}
			cc := dial(t, "xds:///"+service, opts...)
			mustFail(t, cc, tc.texts...)
			waiting := make(chan error, 1)
			go func() {
				_, err := call(testutils.Context(t), cc, unary, grpc.WaitForReady(true))
				waiting <- err
			}()
			put(t, file, m.bootstrap())
			if err := <-waiting; err != nil {
				t.Error(err)
			}
			for _, k := range kinds {
				mustReach(t, cc, k, backend)
			}
		})
	}
}

// A channel that DNS resolves because there was no bootstrap moves to xDS, and no RPC
// fails of that, whatever the bootstrap says of DNS.
func TestABootstrapThatComesLaterMovesFromDNS(t *testing.T) {
	overLinksInTurn(t, func(t *testing.T) {
		for _, fallback := range []string{"never", "not_found"} {
			t.Run(fallback, func(t *testing.T) {
				t.Setenv("GRPC_XDS_BOOTSTRAP", "")
				t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "")
				m := newMesh(t)
				byDNS, mesh := testutils.StartBackend(t, "dns"), testutils.StartBackend(t, "mesh")
				_, target := inZone(t, byDNS)
				m.set(append(chain(target, toCluster("c")), clusterOf("c", mesh)...)...)
				cc := dial(t, "xds:///"+target)
				load := loadOn(t, cc, byDNS)
				t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", `{"xds_servers": "faulty"}`)
				load.await(t, byDNS)
				t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", string(m.bootstrap(testutils.TopLevel("dns_fallback", fallback))))
				load.await(t, mesh)
				load.stop(t)
				if got := statusOf(t, "xds:///"+target); got.Mode != dynxds.ModeXDS {
					t.Errorf("mode %v, %q", got.Mode, got.Reason)
				}
			})
		}
	})
}

// A variable that is taken away is as good as none: DNS takes over from a bootstrap with
// faults, as for new channels.
func TestAFaultyBootstrapIsTakenAway(t *testing.T) {
	t.Setenv("GRPC_XDS_BOOTSTRAP", "")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", `{"xds_servers": "faulty"}`)
	backend := testutils.StartBackend(t, "dns")
	_, target := inZone(t, backend)
	cc := dial(t, "xds:///"+target)
	mustFail(t, cc, "xds_servers")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "")
	mustReach(t, cc, unary, backend)
}

// A channel that is closed while it has no bootstrap leaves nothing behind.
func TestClosedWithoutABootstrap(t *testing.T) {
	t.Setenv("GRPC_XDS_BOOTSTRAP", filepath.Join(t.TempDir(), "bootstrap.json"))
	for range 20 {
		cc, err := grpc.NewClient("xds:///"+service, dialInsecure)
		xdstest.NoError(t, err)
		cc.Connect()
		cc.Close()
	}
}
