package command

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/clients"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// pages returns the address of the pages of a flag, as the log says it.
func (p *process) pages(flag string) string {
	p.t.Helper()
	var page struct {
		URL  string
		Open bool
	}
	xdstest.NoError(p.t, json.Unmarshal([]byte(p.logged(`"flag":"`+flag+`"`)), &page))
	if !strings.HasPrefix(page.URL, "http://127.0.0.1:") || page.Open {
		p.t.Errorf("the pages of %s are at %s, open to others: %v, want loopback", flag, page.URL, page.Open)
	}
	return page.URL
}

type silentWatcher struct{}

func (silentWatcher) ResourceChanged(_ any, _ error, done func()) { done() }
func (silentWatcher) AmbientError(_ error, done func())           { done() }

// Two replicas have three clients: dynxds, one by delta, and one that rejects what it gets.
func TestClients(t *testing.T) {
	t.Parallel()
	var replicas []*process
	var admin, addresses []string
	var metrics string
	for range 2 {
		p := startServe(t, exampleMesh, "--admin=:0", "--metrics=:0")
		admin = append(admin, strings.TrimSuffix(strings.TrimPrefix(p.pages("--admin"), "http://"), "/"))
		if url := p.pages("--metrics"); metrics == "" {
			metrics = url
		}
		replicas, addresses = append(replicas, p), append(addresses, p.address())
	}

	cfg, err := bootstrap.Parse("test", testutils.Bootstrap("dynxds-1", addresses[0], testutils.NodeField("cluster", "shop")))
	xdstest.NoError(t, err)
	client, err := xdsclient.New(cfg)
	xdstest.NoError(t, err)
	t.Cleanup(client.Close)
	client.Watch(xdsresource.ListenerType, "backend", silentWatcher{})

	sotw := cmdtest.SotW(t, cmdtest.Dial(t, addresses[0]))
	request := &discoverypb.DiscoveryRequest{Node: &corepb.Node{Id: "picky-1"}, TypeUrl: typeurl.Listener, ResourceNames: []string{"backend"}}
	request.ResponseNonce = sotw.Exchange(request).GetNonce()
	request.ErrorDetail = &statuspb.Status{Message: "no \x1b[31mtaste\u202e"}
	sotw.Send(request)

	delta := cmdtest.Delta(t, cmdtest.Dial(t, addresses[1]))
	first := delta.Exchange(&discoverypb.DeltaDiscoveryRequest{
		Node: &corepb.Node{Id: "delta-1"}, TypeUrl: typeurl.Listener, ResourceNamesSubscribe: []string{"backend"},
	})
	delta.Send(&discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Listener, ResponseNonce: first.GetNonce()})

	both := strings.Join(admin, ",")
	// The state of each client's Listeners, once all have answered.
	want := strings.Join([]string{
		"delta-1 delta " + admin[1] + " ACK 1 ", "dynxds-1 SotW " + admin[0] + " ACK 1 ", "picky-1 SotW " + admin[0] + " NACK  1\n",
	}, "\n")
	cmdtest.Await(t, func() string {
		stdout, stderr, exit := run(t, "clients", "-o", "json", "--admin", both)
		if exit != 0 || strings.ContainsAny(stdout, "\x1b\u202e") {
			t.Fatalf("exit status %d: %s%s", exit, stderr, stdout)
		}
		var fleet clients.Fleet
		xdstest.NoError(t, json.Unmarshal([]byte(stdout), &fleet))
		var got []string
		for _, c := range fleet.Clients {
			for _, of := range c.Types {
				got = append(got, fmt.Sprintln(c.Node, c.Protocol, c.Replica, of.State, of.ACKed, of.Refused))
			}
		}
		slices.Sort(got)
		if strings.Join(got, "") == want {
			return ""
		}
		return fmt.Sprintf("got %q, want %q", got, want)
	})
	stdout, _, exit := run(t, "clients", "--admin", both, "--nacks")
	if exit != 0 || !strings.Contains(stdout, `Listener, version 1: no \x1b[31mtaste\u202e`) || strings.Contains(stdout, "delta-1") || strings.Contains(stdout, "dynxds-1") {
		t.Errorf("exit status %d, want what is refused and nothing else:\n%s", exit, stdout)
	}
	body := cmdtest.Get(t, metrics+"metrics")
	if lacking := cmdtest.LackingLines(body,
		`dynxds_controlplane_clients 2`, `dynxds_controlplane_nacks_total{type="Listener"} 1`,
		`dynxds_controlplane_refusing_streams{type="Listener"} 1`, `dynxds_controlplane_acks_total{type="Listener"} 1`,
		`dynxds_controlplane_documents 4`,
	); len(lacking) > 0 {
		t.Errorf("the metrics lack %q:\n%s", lacking, body)
	}
	if health := cmdtest.Get(t, metrics+"healthz"); health != "SERVING\n" {
		t.Errorf("the health of the first replica is %q, want SERVING", health)
	}

	replicas[0].logged(`"msg":"a client rejects a response"`, `"node":"picky-1"`, `"type":"`+typeurl.Listener+`"`, `"version":"1"`, `"error":"no \u001b[31mtaste`)

	replicas[1].drain()
	stdout, stderr, exit := run(t, "clients", "--admin", both)
	if exit != 3 || !strings.Contains(stderr, "1 of 2 replicas did not answer:\n\t"+admin[1]) || !strings.Contains(stdout, "picky-1") {
		t.Errorf("with one replica gone: exit status %d, %s\n%s", exit, stderr, stdout)
	}
	replicas[0].drain()
}
