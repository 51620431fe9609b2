package site_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/stats"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/clients"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/internal/status"
	"github.com/dynxds/dynxds/mesh/statuspage"
	"github.com/dynxds/dynxds/observe/csds"
	_ "github.com/dynxds/dynxds/observe/metrics" // has RPCs counted
	"github.com/dynxds/dynxds/testutils"
)

// calls counts the RPCs of a channel by their status, as a plugin for metrics does.
type calls struct {
	estats.UnimplementedMetricsRecorder
	mu sync.Mutex
	by map[string]uint64
}

func (c *calls) RecordInt64Count(h *estats.Int64CountHandle, n int64, labels ...string) {
	d := h.Descriptor()
	if i := slices.Index(d.Labels, "grpc.status"); d.Name == "dynxds.client.calls" && i >= 0 {
		c.mu.Lock()
		c.by[labels[i]] += uint64(n)
		c.mu.Unlock()
	}
}

func (*calls) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*calls) HandleRPC(context.Context, stats.RPCStats)                         {}
func (*calls) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*calls) HandleConn(context.Context, stats.ConnStats)                       {}

// numbers are what one view says of a mesh. What it does not say is zero.
type numbers struct {
	Clients              int
	RPCs, Failed         uint64
	Connected, Endpoints int
	// Versions are those of resources, by type and name.
	Versions map[string]string
}

func (n *numbers) minute(m *outcomes.Minute) {
	if m != nil {
		n.RPCs, n.Failed = m.Started, m.Failed
	}
}

func (n *numbers) cluster(c *livestate.Cluster) {
	n.Connected, n.Endpoints = c.Endpoints.Ready, c.Endpoints.All
	if c.RPCs != nil {
		n.minute(&c.RPCs.Minute)
	}
}

// version notes the version of a resource, unless it is of a type that only some clients have.
func (n *numbers) version(typ, name, version string) {
	if typ != "DynamicParameterConstraintsMap" {
		n.Versions[typ+" "+strings.TrimSpace(name)] = version
	}
}

// sections reads sections of a page.
func sections(t *testing.T, page string, query url.Values, into any) {
	t.Helper()
	xdstest.NoError(t, json.Unmarshal([]byte(cmdtest.Get(t, page+"data?"+query.Encode())), into))
}

// Whatever shows a mesh shows the same of it: "dynxds status", "clients" and "top", the pages of a process and of a control plane, and the
// metrics of both.
func TestNumbersAgree(t *testing.T) {
	t.Parallel()
	eachKindOfClient(t, func(t *testing.T, kind clientKind) {
		const succeeded, failed = 30, 12
		// What is counted of RPCs is counted for the target.
		service := "numbers-" + strings.ToLower(rand.Text())
		backends := []*testutils.Backend{testutils.StartBackend(t, "a"), testutils.StartBackend(t, "b")}
		r := start(t, kind.authority, map[string]string{"a.yaml": fmt.Sprintf(
			"kind: Service\nname: %s\nloadReporting: true\nendpoints: [{address: %q}, {address: %q}]\n", service, backends[0].Addr(), backends[1].Addr(),
		)}, func(o *site.Options) {
			o.LoadInterval, o.Page, o.Serve.Admin, o.Serve.MetricsAddress = time.Second, "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
		})
		pageOf := func(flag string) string {
			page, _, _ := strings.Cut(r.log.After("flag=" + flag + " url=")[0], " ")
			return page
		}
		admin := []clients.Replica{{Admin: strings.Trim(strings.TrimPrefix(pageOf("--admin"), "http://"), "/")}}
		counted := &calls{by: make(map[string]uint64)}
		frontend := r.dialAs(service, kind, map[string]any{"service": "frontend", "version": "v1"}, grpc.WithStatsHandler(counted))
		process := status.Process{Address: cmdtest.Serve(t, func(s *grpc.Server) { xdstest.NoError(t, csds.Register(s)) })}
		page := httptest.NewServer(statuspage.Handler())
		t.Cleanup(page.Close)

		for range succeeded {
			_, _, err := frontend.call()
			xdstest.NoError(t, err)
		}
		frontend.reaches("a")
		frontend.reaches("b")
		want := numbers{Clients: 1, RPCs: failed, Failed: failed, Connected: 2, Endpoints: 2, Versions: map[string]string{}}
		for _, b := range backends {
			want.RPCs += uint64(b.Count())
			b.Fail(grpcstatus.Error(codes.Internal, "broken"))
		}
		for range failed {
			if _, _, err := frontend.call(); grpcstatus.Code(err) != codes.Internal {
				t.Fatalf("an RPC ended with %v, want INTERNAL", err)
			}
		}

		ctx := t.Context()
		views := map[string]func() numbers{
			"status": func() (n numbers) {
				report, err := status.Ask(ctx, process)
				xdstest.NoError(t, err)
				n.Versions = map[string]string{}
				for _, c := range report.Clients {
					if !strings.Contains(c.Scope, service) {
						continue
					}
					n.cluster(c.State.Clusters[0])
					for _, r := range c.Resources {
						n.version(r.Type, r.Name, r.Version)
					}
				}
				return n
			},
			"top of the process": func() (n numbers) {
				top, err := status.AskTop(ctx, process)
				xdstest.NoError(t, err)
				for _, c := range top.Clients {
					if strings.Contains(c.Scope, service) {
						n.cluster(c.State.Clusters[0])
					}
				}
				return n
			},
			"page of the process": func() (n numbers) {
				var of struct {
					Clusters struct{ Items []*livestate.Cluster }
					// Resources are those that this search finds: the names of all have the service.
					Resources struct {
						Items []struct{ Type, Name, Variant, Version string }
					}
				}
				sections(t, page.URL+"/", url.Values{"show": {"clusters", "resources"}, "clusters.q": {service}, "resources.q": {service}}, &of)
				n.Versions = map[string]string{}
				if len(of.Clusters.Items) > 0 {
					n.cluster(of.Clusters.Items[0])
				}
				for _, r := range of.Resources.Items {
					n.version(r.Type, r.Name+" "+r.Variant, r.Version)
				}
				return n
			},
			"metrics of the process": func() (n numbers) {
				counted.mu.Lock()
				defer counted.mu.Unlock()
				for code, calls := range counted.by {
					n.RPCs += calls
					if code != "OK" {
						n.Failed += calls
					}
				}
				return n
			},
			"clients": func() (n numbers) {
				fleet := clients.Ask(ctx, admin, false, time.Minute)
				xdstest.NoError(t, fleet.Err())
				n.Clients, n.Versions = len(fleet.Clients), map[string]string{}
				for _, c := range fleet.Clients {
					for _, of := range c.Types {
						for _, r := range of.Resources {
							n.version(of.Type, r.Name, r.Version)
						}
					}
				}
				return n
			},
			"top": func() (n numbers) {
				top := clients.AskTop(ctx, admin, time.Minute)
				xdstest.NoError(t, top.Err())
				n.Clients = top.Clients
				for _, d := range top.Destinations {
					n.minute(d.RPCs)
				}
				return n
			},
			"page of the control plane": func() (n numbers) {
				var of struct {
					Peers struct {
						Clients      int
						Destinations []clients.Destination
						Items        []clients.Client
					}
				}
				sections(t, pageOf("--page"), url.Values{"show": {"peers"}}, &of)
				n.Clients, n.Versions = of.Peers.Clients, map[string]string{}
				for _, d := range of.Peers.Destinations {
					n.minute(d.RPCs)
				}
				for _, c := range of.Peers.Items {
					for _, of := range c.Types {
						for _, r := range of.Resources {
							n.version(of.Type, r.Name, r.Version)
						}
					}
				}
				return n
			},
			"metrics of the control plane": func() (n numbers) {
				for line := range strings.Lines(cmdtest.Get(t, pageOf("--metrics")+"metrics")) {
					var value int
					if name, rest, _ := strings.Cut(strings.TrimSpace(line), " "); name == "dynxds_controlplane_clients" {
						_, _ = fmt.Sscan(rest, &n.Clients)
					} else if strings.HasPrefix(name, "dynxds_controlplane_load_rpcs_total{") {
						_, _ = fmt.Sscan(rest, &value)
						n.RPCs += uint64(value)
						if strings.Contains(name, `outcome="failed"`) {
							n.Failed = uint64(value)
						}
					}
				}
				return n
			},
		}
		// Listener, routes, cluster and endpoints, with versions of the process's.
		cmdtest.Await(t, func() string {
			want.Versions = views["status"]().Versions
			if len(want.Versions) == 4 && !slices.Contains(valuesOf(want.Versions), "") {
				return ""
			}
			return fmt.Sprintf("the process has %v, want a version of each of the four types", want.Versions)
		})
		for name, view := range views {
			cmdtest.Await(t, func() string { return disagreement(name, view(), want) })
		}
	})
}

func valuesOf(of map[string]string) (values []string) {
	for _, v := range of {
		values = append(values, v)
	}
	return values
}

// disagreement compares what a view says.
func disagreement(name string, got, want numbers) string {
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	said := 0
	for i := range g.NumField() {
		if g.Field(i).IsZero() {
			continue
		}
		said++
		if !reflect.DeepEqual(g.Field(i).Interface(), w.Field(i).Interface()) {
			return fmt.Sprintf("%s: %s is %v, want %v", name, g.Type().Field(i).Name, g.Field(i), w.Field(i))
		}
	}
	if said < 2 {
		return fmt.Sprintf("%s says only %+v", name, got)
	}
	return ""
}
