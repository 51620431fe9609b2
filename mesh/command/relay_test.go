package command

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/meshtest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

// aCluster is the first request of a client.
var aCluster = &discoverypb.DeltaDiscoveryRequest{Node: &corepb.Node{Id: "client"}, TypeUrl: typeurl.Cluster, ResourceNamesSubscribe: []string{"c"}}

func startRelay(t *testing.T, bootstrap []byte, args ...string) *process {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bootstrap.json")
	xdstest.NoError(t, os.WriteFile(path, bootstrap, 0o600))
	return start(t, append([]string{"relay", "--bootstrap", path}, args...)...)
}

// Clients reach the relay at a socket, and one that a dead process left does not matter.
func TestRelayAtASocket(t *testing.T) {
	t.Parallel()
	plane := meshtest.StartServer(t)
	plane.Set(t, xdsmsg.EDSCluster("c", ""))
	socket := filepath.Join(t.TempDir(), "relay.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	xdstest.NoError(t, err)
	dead.SetUnlinkOnClose(false)
	dead.Close()
	for _, listen := range []string{"unix:" + socket, "unix://" + socket} {
		relay := startRelay(t, plane.Bootstrap("relay"), "--listen", listen)
		relay.logged("relaying")
		if got := cmdtest.Delta(t, cmdtest.Dial(t, "unix://"+socket)).Exchange(aCluster); len(got.GetResources()) != 1 {
			t.Errorf("%s: got %v, want the cluster", listen, got)
		}
		relay.drain()
	}
}

// The pages of a relay have its metrics, and its clients, and say when its control plane is unreachable.
func TestRelayPages(t *testing.T) {
	t.Parallel()
	plane := meshtest.StartServer(t)
	relay := startRelay(t, plane.Bootstrap("relay"), "--admin=:0", "--away-delay", "0s")
	url := relay.pages("--admin")
	expect := func(page, want string) {
		t.Helper()
		cmdtest.Await(t, func() string { // an answer of the page is as old as a second
			if body := cmdtest.Get(t, url+page); !strings.Contains(body, want) || strings.Contains(body, "dynxds_controlplane_store") {
				return url + page + ": " + body
			}
			return ""
		})
	}
	expect("metrics", "\ndynxds_relay_upstream_unavailable_since_timestamp_seconds 0\n")
	expect("clients", `"clients":[]`)
	expect("healthz", "SERVING")
	plane.Stop()
	cmdtest.Delta(t, cmdtest.Dial(t, relay.address())).Send(aCluster)
	expect("healthz", "SERVING\nthe control plane is unreachable since 2")
	expect("clients", `"upstream":"the control plane is unreachable since 2`)
	relay.drain()
}

// What the relay's xDS clients have to say is in its log: here, that the cache on disk cannot be used. SIGHUP, with which "dynxds serve" reads
// its folder, does not end a relay.
func TestRelayLogsWhatItsClientsSay(t *testing.T) {
	t.Parallel()
	plane := meshtest.StartServer(t)
	noFolder := filepath.Join(t.TempDir(), "file")
	xdstest.NoError(t, os.WriteFile(noFolder, nil, 0o600))
	relay := startRelay(t, plane.Bootstrap("relay", testutils.TopLevel("resource_cache", map[string]any{"directory": noFolder})))
	cmdtest.Delta(t, cmdtest.Dial(t, relay.address())).Send(aCluster)
	relay.logged(`"level":"WARN"`, "the xDS client says", noFolder)
	relay.signal(syscall.SIGHUP)
	relay.logged("SIGHUP is ignored")
	relay.drain()
}

// serve and relay may run on one machine as they are.
func TestDefaultAddressesDiffer(t *testing.T) {
	t.Parallel()
	owner := make(map[string]string)
	for _, cmd := range []*cobra.Command{newServe(), newRelay()} {
		for flag, address := range map[string]string{"--listen": cmd.Flag("listen").DefValue, "--admin": cmd.Flag("admin").NoOptDefVal} {
			_, port, err := net.SplitHostPort(address)
			xdstest.NoError(t, err)
			what := cmd.Name() + " " + flag
			if other := owner[port]; other != "" {
				t.Errorf("%s and %s have the port %s by default", other, what, port)
			}
			owner[port] = what
		}
	}
}
