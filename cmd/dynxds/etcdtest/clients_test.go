package etcdtest

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/clients"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/serve"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/site"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// replica is "dynxds serve --store --admin" in this process.
type replica struct {
	t       *testing.T
	address string
	log     *xdstest.Log
	drain   context.CancelFunc
	ended   chan error
}

func (c *cluster) serve(t *testing.T) *replica {
	t.Helper()
	r := &replica{t: t, log: new(xdstest.Log), ended: make(chan error, 1)}
	ready := make(chan string, 1)
	opts := site.Options{
		Store: &site.Stored{Options: c.options(prefix)}, RemovalDelay: time.Second,
		Serve: serve.Options{Listen: "localhost:0", Admin: ":0", Log: slog.New(slog.NewTextHandler(r.log, nil))},
		Ready: func(a net.Addr) { ready <- a.String() },
	}
	ctx, drain := context.WithCancel(context.Background())
	r.drain = drain
	go func() {
		r.ended <- site.Run(ctx, opts)
		close(r.ended)
	}()
	t.Cleanup(func() {
		drain()
		<-r.ended
	})
	select {
	case r.address = <-ready:
	case err := <-r.ended:
		t.Fatal(err)
	}
	return r
}

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
			http.DefaultClient.CloseIdleConnections()
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

// Replicas are found by their store, and only those that run. A document that is held back is in the
// metrics, and so is a store that is gone.
func TestClientsOfReplicas(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.put(key("a.yaml"), service("a", "10.0.0.1:1"))
	first, second := c.serve(t), c.serve(t)
	for i, r := range []*replica{first, second} {
		cfg, err := bootstrap.Parse("test", testutils.Bootstrap([]string{"of the first", "of the second"}[i], r.address))
		xdstest.NoError(t, err)
		client, err := xdsclient.New(cfg)
		xdstest.NoError(t, err)
		t.Cleanup(client.Close)
		client.Watch(&xdsclient.ResourceType{TypeURL: "type.googleapis.com/envoy.config.listener.v3.Listener", Name: "Listener", FullStateInSotW: true}, "a", silent{})
	}
	s := c.open(prefix)
	ctx := testutils.Context(t)
	// nodes are those of the clients of all replicas that the store knows.
	nodes := func() (found []string) {
		list, err := s.Replicas(ctx)
		xdstest.NoError(t, err)
		var replicas []clients.Replica
		for _, r := range list {
			replicas = append(replicas, clients.Replica{Admin: r.Admin, ID: r.ID})
		}
		fleet := clients.Ask(ctx, replicas, false)
		for _, c := range fleet.Clients {
			if c.Types[0].State == clients.StateACK {
				found = append(found, c.Node)
			}
		}
		slices.Sort(found)
		return found
	}
	await := func(want ...string) {
		t.Helper()
		for {
			got := nodes()
			if slices.Equal(got, want) {
				return
			}
			select {
			case <-ctx.Done():
				t.Fatalf("got the clients %q, want %q", got, want)
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
	<-second.ended
	await("of the first")
}
