package etcdtest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/clients"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// metrics waits until the replica's metrics have lines.
func (r *replica) metrics(lines ...string) {
	r.t.Helper()
	_, url, _ := strings.Cut(r.log.String(), "url=")
	url, _, _ = strings.Cut(url, " ")
	ctx := testutils.Context(r.t)
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"metrics", nil)
		xdstest.NoError(r.t, err)
		resp, err := http.DefaultClient.Do(request)
		xdstest.NoError(r.t, err)
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		xdstest.NoError(r.t, err)
		lacking := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.Contains(string(body), "\n"+line+"\n") })
		if len(lacking) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			r.t.Fatalf("the metrics lack %q:\n%s", lacking, body)
		case <-time.After(10 * time.Millisecond):
		}
	}
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
		client, err := xdsclient.New(cfg)
		xdstest.NoError(t, err)
		t.Cleanup(client.Close)
		client.Watch(&xdsclient.ResourceType{TypeURL: typeurl.Listener, Name: "Listener", FullStateInSotW: true}, "a", silent{})
	}
	ctx := testutils.Context(t)
	// await waits until the clients with these nodes are those of all replicas, and have ACKed.
	await := func(want ...string) {
		t.Helper()
		for {
			var stderr bytes.Buffer
			cmd := exec.CommandContext(ctx, command, "clients", "--json", "--store", c.options(prefix).URL)
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
				return
			}
			select {
			case <-ctx.Done():
				t.Fatalf("got the clients %q, want %q: %s%s", got, want, stdout, stderr.String())
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	await("of the first", "of the second")
	first.metrics("dynxds_controlplane_documents 1", "dynxds_controlplane_document_faults 0",
		"dynxds_controlplane_store_lag_seconds 0", "dynxds_controlplane_store_gone_seconds 0")
	c.put(key("b.yaml"), "kind: Service\nnme: b\n")
	first.metrics("dynxds_controlplane_documents 1", "dynxds_controlplane_document_faults 1")
	c.delete(key("b.yaml"))
	first.metrics("dynxds_controlplane_document_faults 0", "dynxds_controlplane_store_lag_seconds 0")
	second.drain()
	await("of the first")
}
