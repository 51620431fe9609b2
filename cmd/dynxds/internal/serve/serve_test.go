package serve_test

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/serve"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/serve/servetest"
	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/testca"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testTimeout = 20 * time.Second

// running is a server that serves.
type running struct {
	t *testing.T
	*serve.Server
	// drain ends it; ended has the result of Serve.
	drain context.CancelFunc
	ended chan error
}

// start serves an empty control plane until the test ends.
func start(t *testing.T, opts serve.Options) *running {
	t.Helper()
	opts.Listen = "localhost:0"
	s, err := serve.New(controlplane.NewServer(controlplane.NewStore(), controlplane.Options{}), opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: t, Server: s, drain: cancel, ended: make(chan error, 1)}
	go func() {
		r.ended <- s.Serve(ctx)
		close(r.ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.ended
	})
	return r
}

// dial connects to the server.
func (r *running) dial(creds credentials.TransportCredentials) *grpc.ClientConn {
	r.t.Helper()
	conn, err := grpc.NewClient(r.Addr().String(), grpc.WithTransportCredentials(creds))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

func (r *running) health(conn *grpc.ClientConn, service string) (healthpb.HealthCheckResponse_ServingStatus, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), testTimeout)
	defer cancel()
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	return answer.GetStatus(), err
}

func TestHealthFollowsReadiness(t *testing.T) {
	t.Parallel()
	r := start(t, serve.Options{})
	conn := r.dial(insecure.NewCredentials())
	for _, ready := range []bool{false, true, false} {
		r.SetReady(ready)
		want := healthpb.HealthCheckResponse_NOT_SERVING
		if ready {
			want = healthpb.HealthCheckResponse_SERVING
		}
		for _, service := range []string{"", serve.ADSService} {
			if got, err := r.health(conn, service); err != nil || got != want {
				t.Errorf("ready %v: health of %q is %v, %v, want %v", ready, service, got, err, want)
			}
		}
	}
}

func TestReflectionAndChannelz(t *testing.T) {
	t.Parallel()
	r := start(t, serve.Options{})
	servetest.CheckTools(t, r.dial(insecure.NewCredentials()))
}

func TestDrainEndsStreamsWithUnavailable(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	r := start(t, serve.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	stream, err := discoverypb.NewAggregatedDiscoveryServiceClient(r.dial(insecure.NewCredentials())).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// The answer to a wildcard request shows that the stream is served.
	wildcard := &discoverypb.DiscoveryRequest{
		Node: &corepb.Node{Id: "frontend-1"}, TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster",
	}
	if err := stream.Send(wildcard); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	r.drain()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v, want UNAVAILABLE", err)
	}
	if err := <-r.ended; err != nil {
		t.Errorf("Serve returned %v, want nil", err)
	}
	for _, want := range []string{"stream ended", "StreamAggregatedResources", "peer=127.0.0.1:", "node=frontend-1", "status=Unavailable"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks the stream: no %q in\n%s", want, log.String())
		}
	}
}

func TestDrainCutsOffAfterGrace(t *testing.T) {
	t.Parallel()
	r := start(t, serve.Options{Grace: time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	watch, err := healthpb.NewHealthClient(r.dial(insecure.NewCredentials())).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	r.drain()
	select {
	case err := <-r.ended:
		if err != nil {
			t.Errorf("Serve returned %v, want nil", err)
		}
	case <-ctx.Done():
		t.Fatal("a health watch kept the server from ending")
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ca, stranger := testca.New(t), testca.New(t)
	files := testca.NewFiles(t)
	files.Issue(ca)
	for _, test := range []struct {
		name     string
		clientCA string
		client   *tls.Config
		want     codes.Code
	}{
		{"a client without a certificate where none is wanted", "", ca.ClientConfig(false), codes.OK},
		{"a client that does not trust the server", "", stranger.ClientConfig(false), codes.Unavailable},
		{"a client with the certificate that is wanted", files.CA, ca.ClientConfig(true), codes.OK},
		{"a client without the certificate that is wanted", files.CA, ca.ClientConfig(false), codes.Unavailable},
		{"a client with another authority's certificate", files.CA, mixed(ca, stranger), codes.Unavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, serve.Options{Cert: files.Cert, Key: files.Key, ClientCA: test.clientCA})
			_, err := r.health(r.dial(credentials.NewTLS(test.client)), "")
			if status.Code(err) != test.want {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// mixed is a client that trusts one authority and is certified by another.
func mixed(trusts, certifies *testca.CA) *tls.Config {
	config := trusts.ClientConfig(false)
	config.Certificates = certifies.ClientConfig(true).Certificates
	return config
}

// The error names the faulty options.
func TestFaultyOptions(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	files := testca.NewFiles(t)
	files.Issue(ca)
	taken, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	for _, test := range []struct {
		name string
		opts serve.Options
		want []string
	}{
		{"a certificate without its key", serve.Options{Cert: files.Cert}, []string{"--tls-cert needs --tls-key"}},
		{"a key without its certificate", serve.Options{Key: files.Key}, []string{"--tls-key needs --tls-cert"}},
		{"several", serve.Options{ClientCA: files.CA, Grace: -1}, []string{"--client-ca needs --tls-cert", "--grace is negative"}},
		{"no such certificate", serve.Options{Cert: "nowhere.pem", Key: files.Key}, []string{"nowhere.pem", "no such file"}},
		{"a key in the place of the CA", serve.Options{Cert: files.Cert, Key: files.Key, ClientCA: files.Key}, []string{"--client-ca " + files.Key, "no PEM certificate"}},
		{"no such CA", serve.Options{Cert: files.Cert, Key: files.Key, ClientCA: "nowhere.pem"}, []string{"--client-ca", "nowhere.pem"}},
		{"an address that is taken", serve.Options{Listen: taken.Addr().String()}, []string{"--listen " + taken.Addr().String(), "use another port"}},
		{"no such address", serve.Options{Listen: "localhost:no-port"}, []string{"--listen localhost:no-port"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, err := serve.New(controlplane.NewServer(controlplane.NewStore(), controlplane.Options{}), test.opts)
			if err == nil {
				s.Close()
				t.Fatal("New succeeded")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %q, want %q in it", err, want)
				}
			}
		})
	}
}

// A client that reopens a stream with a faulty request is logged once, with the error; the drain
// logs the number of repetitions.
func TestAFlappingClientIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	r := start(t, serve.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	client := discoverypb.NewAggregatedDiscoveryServiceClient(r.dial(insecure.NewCredentials()))
	const streams = 300
	for range streams {
		stream, err := client.StreamAggregatedResources(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&discoverypb.DiscoveryRequest{Node: &corepb.Node{Id: "frontend-1"}}); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Fatalf("the stream ended with %v, want INVALID_ARGUMENT", err)
		}
	}
	r.drain()
	<-r.ended
	var lines, ends int
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, "stream ended") {
			continue
		}
		lines++
		repeated := 1
		if _, number, ok := strings.Cut(strings.TrimSpace(line), "repeated="); ok {
			repeated, _ = strconv.Atoi(number)
		}
		ends += repeated
		for _, want := range []string{"node=frontend-1", "status=InvalidArgument", "type_url: empty"} {
			if !strings.Contains(line, want) {
				t.Errorf("no %q in %s", want, line)
			}
		}
	}
	if ends != streams || lines < 2 || lines > 20 {
		t.Errorf("the log has %d streams in %d lines, want %d in a few:\n%s", ends, lines, streams, log.String())
	}
}
