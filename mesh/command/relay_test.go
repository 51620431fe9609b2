package command

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/meshtest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

// What the relay's xDS clients have to say is in its log: here, that the cache on disk cannot be used. SIGHUP, with which "dynxds serve" reads
// its folder, does not end a relay.
func TestRelayLogsWhatItsClientsSay(t *testing.T) {
	t.Parallel()
	plane := meshtest.StartServer(t)
	noFolder := filepath.Join(t.TempDir(), "file")
	xdstest.NoError(t, os.WriteFile(noFolder, nil, 0o600))
	path := filepath.Join(t.TempDir(), "bootstrap.json")
	xdstest.NoError(t, os.WriteFile(path, plane.Bootstrap("relay", testutils.TopLevel("resource_cache", map[string]any{"directory": noFolder})), 0o600))
	relay := start(t, "relay", "--bootstrap", path)
	cmdtest.Delta(t, cmdtest.Dial(t, relay.address())).Send(&discoverypb.DeltaDiscoveryRequest{
		Node: &corepb.Node{Id: "client"}, TypeUrl: typeurl.Cluster, ResourceNamesSubscribe: []string{"c"},
	})
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
