package serve_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/metrics"
	"github.com/dynxds/dynxds/mesh/internal/serve"
	"github.com/dynxds/dynxds/testutils"
)

// urls returns the addresses of pages that a log names.
func urls(log string) (found []string) {
	for _, field := range strings.Fields(log) {
		if url, ok := strings.CutPrefix(field, "url="); ok {
			found = append(found, strings.TrimSuffix(url, "/"))
		}
	}
	return found
}

// The pages are on loopback unless another address is named; names that others may have pointed here are
// refused, but for the metrics that all may read.
func TestPages(t *testing.T) {
	t.Parallel()
	var log xdstest.Log
	r := start(t, serve.Options{
		Admin: ":0", MetricsAddress: "0.0.0.0:0", Metrics: metrics.New(), Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	r.SetReady(false)
	pages := urls(log.String())
	if len(pages) != 2 || !strings.HasPrefix(pages[0], "http://127.0.0.1:") || log.Count("level=WARN", "flag=--metrics", "open=true") != 1 || log.Count("level=INFO", "flag=--admin", "open=false") != 1 {
		t.Fatalf("the log is %s", log.String())
	}
	admin, open := pages[0], strings.Replace(pages[1], "[::]", "127.0.0.1", 1)
	xdstest.Equal(t, "AdminAddr", admin, "http://"+r.AdminAddr())
	for _, test := range []struct {
		url, host string
		status    int
		want      string
	}{
		{admin + "/clients", "", 200, `"clients":[]`},
		{admin + "/clients", "localhost", 200, `"replica":"` + r.ID() + `"`},
		{admin + "/clients", "evil.example", 403, "DNS rebinding"},
		{admin + "/metrics", "", 200, "dynxds_controlplane_clients 0"},
		{admin + "/metrics", "evil.example", 403, "DNS rebinding"},
		{admin + "/", "", 404, ""},
		{open + "/metrics", "dynxds.mesh.svc", 200, "dynxds_controlplane_clients 0"},
		{open + "/clients", "", 404, ""},
		{open + "/healthz", "", 503, "NOT_SERVING"},
	} {
		if status, body := cmdtest.GetAs(t, test.url, test.host); status != test.status || !strings.Contains(body, test.want) {
			t.Errorf("%s as %q: %d, %s; want %d with %q", test.url, test.host, status, body, test.status, test.want)
		}
	}
}

// Health follows readiness, over gRPC and HTTP, until the drain has ended.
func TestHealthWhileDraining(t *testing.T) {
	t.Parallel()
	var log xdstest.Log
	r := start(t, serve.Options{Admin: "localhost:0", Grace: time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil))})
	url := urls(log.String())[0] + "/healthz"
	if !strings.HasPrefix(url, "http://localhost:") {
		t.Errorf("the pages are at %s, want the name in the flag", url)
	}
	check := func(when string, want int) {
		t.Helper()
		if status, body := cmdtest.GetAs(t, url, ""); status != want {
			t.Errorf("%s: %s is %d %s, want %d", when, url, status, body, want)
		}
	}
	r.SetReady(false)
	check("before the first configuration", 503)
	r.SetReady(true)
	check("when it serves", 200)
	watch, err := healthpb.NewHealthClient(r.dial(insecure.NewCredentials())).Watch(testutils.Context(t), &healthpb.HealthCheckRequest{Service: serve.ADSService})
	xdstest.NoError(t, err)
	next := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		answer, err := watch.Recv()
		if err != nil || answer.GetStatus() != want {
			t.Fatalf("the health service says %v, %v, want %v", answer, err, want)
		}
	}
	next(healthpb.HealthCheckResponse_SERVING)
	r.drain() // which waits for the watch
	next(healthpb.HealthCheckResponse_NOT_SERVING)
	check("while it drains", 503)
}
