package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

const target = "xds:///backend"

// startBackend starts a backend whose first RPC fails in a way that is retried.
func startBackend(t *testing.T) (addr string) {
	var rpcs atomic.Int32
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if rpcs.Add(1) == 1 {
			return nil, status.Error(codes.Unavailable, "try again")
		}
		return handler(ctx, req)
	}))
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener := listen(t)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func listen(t *testing.T) net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	return listener
}

// What Prometheus scrapes has gRPC's metrics with the labels that xDS gives them, and dynxds's own.
func TestPage(t *testing.T) {
	control := testutils.StartFakeServer(t)
	place := xdsmsg.In("zone", startBackend(t))
	place.Region = "region"
	route := xdsmsg.With(xdsmsg.PrefixRoute("/", "blue"),
		`name: "main" route { retry_policy { retry_on: "unavailable" num_retries { value: 1 } } }`)
	control.Set(t, xdsmsg.DefaultListener("backend", "routes"), xdsmsg.RouteConfig("routes", "backend", route),
		xdsmsg.EDSCluster("blue", ""), xdsmsg.Endpoints("blue", place))
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", string(control.Bootstrap("client")))

	ctx, stop := context.WithCancel(testutils.Context(t))
	page, spans, ended := listen(t), new(bytes.Buffer), make(chan error)
	go func() { ended <- run(ctx, target, page, time.Millisecond, spans) }()
	url := fmt.Sprintf("http://%s/metrics", page.Addr())
	text := scrape(ctx, t, url)
	// A page may be written while an RPC ends.
	for ; min(value(text, "dynxds_client_calls_total"), value(text, "dynxds_client_call_duration_seconds_count")) < 10; text = scrape(ctx, t, url) {
	}
	stop()
	xdstest.NoError(t, <-ended)

	byRoute := []string{`dynxds_priority="0"`, `dynxds_route="main"`, `grpc_lb_backend_service="blue"`, `grpc_target="` + target + `"`}
	byServer := []string{`grpc_target="` + target + `"`, `grpc_xds_server="` + control.Addr() + `"`}
	for _, want := range []struct {
		name     string
		labels   []string
		min, max float64
	}{
		{"grpc_client_attempt_duration_seconds_count", []string{`grpc_lb_backend_service="blue"`, `grpc_status="UNAVAILABLE"`,
			`grpc_lb_locality="{region=\"region\", zone=\"zone\", sub_zone=\"\"}"`}, 1, 1},
		{"dynxds_client_calls_total", append([]string{`grpc_status="OK"`}, byRoute...), 10, 1e6},
		{"dynxds_client_call_duration_seconds_count", byRoute, 10, 1e6},
		{"dynxds_client_call_duration_seconds_sum", byRoute, 1e-9, 600},
		{"dynxds_client_call_retries_total", byRoute, 1, 1},
		{"dynxds_client_config_age_seconds", []string{`grpc_target="` + target + `"`}, 0, 600},
		{"grpc_xds_client_connected", byServer, 1, 1},
	} {
		if got := value(text, want.name, want.labels...); got < want.min || got > want.max {
			t.Errorf("%s{%s} is %v, want %v to %v", want.name, strings.Join(want.labels, ","), got, want.min, want.max)
		}
	}
	if t.Failed() {
		t.Logf("the page:\n%s", text)
	}
	for _, want := range []string{`"dynxds.routed"`, `"dynxds.retried"`, `"dynxds.route"`} {
		if !strings.Contains(spans.String(), want) {
			t.Errorf("no span has %s", want)
		}
	}
}

// scrape returns the page.
func scrape(ctx context.Context, t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	xdstest.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	xdstest.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	xdstest.NoError(t, err)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s\n%s", url, response.Status, text)
	}
	return string(text)
}

var sample = regexp.MustCompile(`(?m)^(\w+)(?:\{(.*)\})? (\S+)$`)

// value returns the value of the first sample with a name and labels, or -1.
func value(page, name string, labels ...string) float64 {
samples:
	for _, s := range sample.FindAllStringSubmatch(page, -1) {
		if s[1] != name {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(s[2], label) {
				continue samples
			}
		}
		if v, err := strconv.ParseFloat(s[3], 64); err == nil {
			return v
		}
	}
	return -1
}
