package etcdtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/clients"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// metrics waits until the replica's metrics have lines.
func (r *replica) metrics(lines ...string) {
	r.t.Helper()
	cmdtest.Await(r.t, func() string {
		page := cmdtest.Get(r.t, r.page("--admin")+"metrics")
		if lacking := cmdtest.LackingLines(page, lines...); len(lacking) > 0 {
			return fmt.Sprintf("the metrics lack %q:\n%s", lacking, page)
		}
		return ""
	})
}

type silent struct{}

func (silent) ResourceChanged(_ any, _ error, done func()) { done() }
func (silent) AmbientError(_ error, done func())           { done() }

// Replicas are found by their store, and those that have ended are not. A document that is held back is in
// the metrics.
func TestClientsOfReplicas(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.put(key("a.yaml"), service("a", "10.0.0.1:1"))
	first, second := newReplica(t, c, "--admin=:0"), newReplica(t, c, "--admin=:0")
	for name, r := range map[string]*replica{"of the first": first, "of the second": second} {
		cfg, err := bootstrap.Parse("test", testutils.Bootstrap(name, r.address))
		xdstest.NoError(t, err)
		client, err := xdsclient.New(cfg, xdsclient.Options{})
		xdstest.NoError(t, err)
		t.Cleanup(client.Close)
		client.Watch(xdsresource.ListenerType, "a", silent{})
	}
	// await waits until the clients with these nodes are those of all replicas, and have ACKed.
	await := func(want ...string) {
		t.Helper()
		cmdtest.Await(t, func() string {
			var stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), command, "clients", "-o", "json", "--store", c.options(prefix).URL)
			cmd.Stderr = &stderr
			stdout, err := cmd.Output()
			var fleet clients.Fleet
			if err == nil {
				xdstest.NoError(t, json.Unmarshal(stdout, &fleet))
			}
			var got []string
			for _, c := range fleet.Clients {
				if c.Types[0].State == clients.StateACK {
					got = append(got, c.Node)
				}
			}
			slices.Sort(got)
			if slices.Equal(got, want) {
				return ""
			}
			return fmt.Sprintf("got the clients %q, want %q: %s%s", got, want, stdout, stderr.String())
		})
	}
	await("of the first", "of the second")
	first.metrics("dynxds_controlplane_documents 1", "dynxds_controlplane_document_faults 0",
		"dynxds_controlplane_store_lag_seconds 0", "dynxds_controlplane_store_gone_seconds 0")
	c.put(key("b.yaml"), "kind: Service\nnme: b\n")
	first.metrics("dynxds_controlplane_documents 1", "dynxds_controlplane_document_faults 2") // the unknown key, and the name that lacks
	c.delete(key("b.yaml"))
	first.metrics("dynxds_controlplane_document_faults 0", "dynxds_controlplane_store_lag_seconds 0")
	second.drain()
	await("of the first")
}
