package serve_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	channelzpb "google.golang.org/grpc/channelz/grpc_channelz_v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/metrics"
	"github.com/dynxds/dynxds/mesh/internal/repeatlog"
	"github.com/dynxds/dynxds/mesh/internal/serve"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
	xdstest.NoError(t, err)
	s.SetReady(true)
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
	return cmdtest.Dial(r.t, r.Addr().String(), grpc.WithTransportCredentials(creds))
}

func (r *running) health(conn *grpc.ClientConn, service string) (healthpb.HealthCheckResponse_ServingStatus, error) {
	answer, err := healthpb.NewHealthClient(conn).Check(testutils.Context(r.t), &healthpb.HealthCheckRequest{Service: service})
	return answer.GetStatus(), err
}

// A server that has nothing to serve yet does not tell clients that nothing exists.
func TestXDSIsRefusedUntilReady(t *testing.T) {
	t.Parallel()
	r := start(t, serve.Options{})
	r.SetReady(false)
	conn, request := r.dial(insecure.NewCredentials()), &discoverypb.DiscoveryRequest{Node: &corepb.Node{Id: "a"}, TypeUrl: clusterType}
	err := cmdtest.SotW(t, conn).Err()
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "not ready") {
		t.Errorf("a stream of a server that is not ready ended with %v, want UNAVAILABLE", err)
	}
	r.SetReady(true)
	cmdtest.SotW(t, conn).Exchange(request)
}

// Reflection knows the services, and channelz the server.
func TestReflectionAndChannelz(t *testing.T) {
	t.Parallel()
	conn := start(t, serve.Options{}).dial(insecure.NewCredentials())
	ctx := testutils.Context(t)
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	xdstest.NoError(t, err)
	list := &reflectionpb.ServerReflectionRequest_ListServices{}
	xdstest.NoError(t, stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: list}))
	answer, err := stream.Recv()
	xdstest.NoError(t, err)
	var services []string
	for _, s := range answer.GetListServicesResponse().GetService() {
		services = append(services, s.GetName())
	}
	for _, want := range []string{serve.ADSService, "grpc.health.v1.Health", "grpc.channelz.v1.Channelz"} {
		if !slices.Contains(services, want) {
			t.Errorf("reflection lists %v, want %s among them", services, want)
		}
	}
	xdstest.NoError(t, stream.CloseSend())
	servers, err := channelzpb.NewChannelzClient(conn).GetServers(ctx, &channelzpb.GetServersRequest{})
	if err != nil || len(servers.GetServer()) == 0 {
		t.Errorf("channelz lists servers %v, %v, want this one", servers, err)
	}
}

const clusterType = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

// A drain ends SotW and delta streams with UNAVAILABLE, and the log has both.
func TestDrainEndsStreamsWithUnavailable(t *testing.T) {
	t.Parallel()
	var log xdstest.Log
	r := start(t, serve.Options{Log: slog.New(repeatlog.NewHandler(slog.NewTextHandler(&log, nil)))})
	conn, node := r.dial(insecure.NewCredentials()), &corepb.Node{Id: "frontend-1"}
	sotw, delta := cmdtest.SotW(t, conn), cmdtest.Delta(t, conn)
	// Each answer to a wildcard request shows that the stream is served.
	sotw.Exchange(&discoverypb.DiscoveryRequest{Node: node, TypeUrl: clusterType})
	delta.Exchange(&discoverypb.DeltaDiscoveryRequest{Node: node, TypeUrl: clusterType})
	r.drain()
	for protocol, err := range map[string]error{"StreamAggregatedResources": sotw.Err(), "DeltaAggregatedResources": delta.Err()} {
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s ended with %v, want UNAVAILABLE", protocol, err)
		}
	}
	if err := <-r.ended; err != nil {
		t.Errorf("Serve returned %v, want nil", err)
	}
	for _, want := range []string{
		"stream ended", "StreamAggregatedResources", "DeltaAggregatedResources", "peer=127.0.0.1:", "node=frontend-1", "status=Unavailable",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks the stream: no %q in\n%s", want, log.String())
		}
	}
}

// A connection ends at its age, with its streams, so that the client opens another, perhaps to another replica.
func TestConnectionsEndAtTheirAge(t *testing.T) {
	t.Parallel()
	r := start(t, serve.Options{MaxConnectionAge: 100 * time.Millisecond, Grace: 100 * time.Millisecond})
	conn := r.dial(insecure.NewCredentials())
	stream := cmdtest.Delta(t, conn)
	stream.Exchange(&discoverypb.DeltaDiscoveryRequest{Node: &corepb.Node{Id: "frontend-1"}, TypeUrl: clusterType})
	xdstest.Equal(t, "code of the stream", codes.Unavailable, status.Code(stream.Err()))
	cmdtest.Delta(t, conn).Exchange(&discoverypb.DeltaDiscoveryRequest{Node: &corepb.Node{Id: "frontend-1"}, TypeUrl: clusterType})
}

func TestDrainCutsOffAfterGrace(t *testing.T) {
	t.Parallel()
	r := start(t, serve.Options{Grace: time.Millisecond})
	ctx := testutils.Context(t)
	watch, err := healthpb.NewHealthClient(r.dial(insecure.NewCredentials())).Watch(ctx, &healthpb.HealthCheckRequest{})
	xdstest.NoError(t, err)
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
		name, clientCA string
		client         *tls.Config
		want           codes.Code
		logged         string
	}{
		{"a client without a certificate where none is wanted", "", ca.ClientConfig(false), codes.OK, ""},
		{"a client that does not trust the server", "", stranger.ClientConfig(false), codes.Unavailable, "tls: bad certificate"},
		{"a client with the certificate that is wanted", files.CA, ca.ClientConfig(true), codes.OK, ""},
		{"a client without the certificate that is wanted", files.CA, ca.ClientConfig(false), codes.Unavailable, "client didn't provide a certificate"},
		{"a client with another authority's certificate", files.CA, mixed(ca, stranger), codes.Unavailable, "certificate signed by unknown authority"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var log xdstest.Log
			plane := metrics.New()
			r := start(t, serve.Options{Cert: files.Cert, Key: files.Key, ClientCA: test.clientCA, Log: slog.New(slog.NewTextHandler(&log, nil)), Metrics: plane})
			if !slices.ContainsFunc(certfiles.Identities(), func(i certfiles.Identity) bool { return i.File == files.Cert }) {
				t.Error("the certificate is not among those whose time left is shown")
			}
			_, err := r.health(r.dial(credentials.NewTLS(test.client)), "")
			xdstest.Equal(t, "code", test.want, status.Code(err))
			if err != nil {
				xdstest.NoError(t, log.Wait(testutils.Context(t), "a TLS handshake failed", "peer=", test.logged))
				page := httptest.NewRecorder()
				plane.Handler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				if strings.Contains(page.Body.String(), "failed_handshakes_total 0") {
					t.Error("the metrics have no failed handshake")
				}
			}
		})
	}
}

// A renewed certificate, of another authority, is that of new connections, and those that there are go on. Until its files are complete,
// the certificate of the start is in use, and the log says so.
func TestRenewedCertificate(t *testing.T) {
	t.Parallel()
	first, second := testca.New(t), testca.New(t)
	files := testca.NewFiles(t)
	files.Issue(first)
	var log xdstest.Log
	r := start(t, serve.Options{Cert: files.Cert, Key: files.Key, Refresh: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
	xdstest.NoError(t, os.WriteFile(files.Cert, []byte("garbage"), 0o600))
	conn := r.dial(credentials.NewTLS(first.ClientConfig(false)))
	_, err := r.health(conn, "")
	xdstest.NoError(t, err)
	xdstest.NoError(t, log.Wait(testutils.Context(t), "--tls-cert "+files.Cert, "those in use stay"))
	files.Issue(second)
	_, err = r.health(r.dial(credentials.NewTLS(second.ClientConfig(false))), "")
	xdstest.NoError(t, err)
	_, err = r.health(conn, "")
	xdstest.NoError(t, err)
	_, err = r.health(r.dial(credentials.NewTLS(first.ClientConfig(false))), "")
	xdstest.Equal(t, "code for a client that trusts the first authority alone", codes.Unavailable, status.Code(err))
}

// mixed is a client that trusts one authority and is certified by another.
func mixed(trusts, certifies *testca.CA) *tls.Config {
	config := trusts.ClientConfig(false)
	config.Certificates = certifies.ClientConfig(true).Certificates
	return config
}

// What a client has before its first request is limited: the size of its headers, the bytes of messages that have arrived in part
// (package admission), and its connections. Others are served.
func TestLimitsOfClientsBeforeTheirFirstRequest(t *testing.T) {
	t.Parallel()
	plane := metrics.New()
	r := start(t, serve.Options{Connections: 6, RequestBytes: 1 << 10, Metrics: plane})
	first := r.dial(insecure.NewCredentials())
	for size, want := range map[int]codes.Code{8 << 10: codes.OK, 17 << 10: codes.Internal} {
		ctx := metadata.AppendToOutgoingContext(testutils.Context(t), "authorization", strings.Repeat("x", size))
		if _, err := healthpb.NewHealthClient(first).Check(ctx, &healthpb.HealthCheckRequest{}); status.Code(err) != want {
			t.Errorf("an RPC with headers of %d bytes ended with %v, want %v", size, err, want)
		}
	}
	begin := func() net.Conn {
		c, err := net.Dial("tcp", r.Addr().String())
		xdstest.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	awaitEnd := func(c net.Conn) {
		t.Helper()
		xdstest.NoError(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a connection beyond a limit stays open")
		}
	}
	half := begin()
	framer := http2.NewFramer(half, nil)
	_, err := half.Write([]byte(http2.ClientPreface))
	xdstest.NoError(t, err)
	xdstest.NoError(t, framer.WriteSettings())
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a"},
		{Name: ":path", Value: "/" + serve.ADSService + "/StreamAggregatedResources"}, {Name: "content-type", Value: "application/grpc"},
	} {
		xdstest.NoError(t, encoder.WriteField(f))
	}
	for stream := uint32(1); stream < 100; stream += 2 {
		if framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}) != nil ||
			framer.WriteData(stream, false, append([]byte{0, 0, 0, 4, 0}, make([]byte, 1000)...)) != nil {
			break // closed already
		}
	}
	awaitEnd(half)
	begin()
	begin()
	awaitEnd(begin())
	_, err = healthpb.NewHealthClient(first).Check(testutils.Context(t), &healthpb.HealthCheckRequest{})
	xdstest.NoError(t, err)
	page := httptest.NewRecorder()
	plane.Handler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, limit := range []string{"connections", "received_bytes"} {
		if want := `dynxds_controlplane_refused_total{limit="` + limit + `"} 1`; !strings.Contains(page.Body.String(), want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
}

// A client that reopens a stream with a faulty request is logged once, with the error; the drain
// logs the number of repetitions.
func TestAFlappingClientIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log xdstest.Log
	r := start(t, serve.Options{Log: slog.New(repeatlog.NewHandler(slog.NewTextHandler(&log, nil)))})
	conn := r.dial(insecure.NewCredentials())
	const streams = 300
	for range streams {
		stream := cmdtest.SotW(t, conn)
		stream.Send(&discoverypb.DiscoveryRequest{Node: &corepb.Node{Id: "frontend-1"}})
		if err := stream.Err(); status.Code(err) != codes.InvalidArgument {
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

// Channelz and reflection can be left out.
func TestWithoutReflectionAndChannelz(t *testing.T) {
	t.Parallel()
	conn := start(t, serve.Options{NoChannelz: true, NoReflection: true}).dial(insecure.NewCredentials())
	_, err := channelzpb.NewChannelzClient(conn).GetServers(testutils.Context(t), &channelzpb.GetServersRequest{})
	xdstest.Equal(t, "code of channelz", codes.Unimplemented, status.Code(err))
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(testutils.Context(t))
	xdstest.NoError(t, err)
	_, err = stream.Recv()
	xdstest.Equal(t, "code of reflection", codes.Unimplemented, status.Code(err))
}
