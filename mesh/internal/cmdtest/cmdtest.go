// Package cmdtest has helpers for the tests of the command and of its packages: servers, connections,
// pages and files that end with the test.
package cmdtest

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

// Write writes a file of a folder beside its place and renames it, so that it counts at the next look.
func Write(t testing.TB, dir, name, text string) {
	t.Helper()
	beside := filepath.Join(dir, "."+name+".next")
	xdstest.NoError(t, os.WriteFile(beside, []byte(text), 0o600))
	// A rename within a tick of the file system's clock could not be told from writing.
	written := time.Now().Add(-time.Second)
	xdstest.NoError(t, os.Chtimes(beside, written, written))
	xdstest.NoError(t, os.Rename(beside, filepath.Join(dir, name)))
}

// Dial returns a connection, in plaintext unless an option says otherwise.
func Dial(t testing.TB, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	plaintext := grpc.WithTransportCredentials(insecure.NewCredentials())
	conn, err := grpc.NewClient(target, append([]grpc.DialOption{plaintext}, opts...)...)
	xdstest.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// DialXDS returns a channel of dynxds with a bootstrap.
func DialXDS(t testing.TB, target string, bootstrap []byte, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return Dial(t, target, append(dynxds.DialOptions(dynxds.WithBootstrap(bootstrap)), opts...)...)
}

// Serve starts a gRPC server on loopback, and returns its address.
func Serve(t testing.TB, register func(*grpc.Server), opts ...grpc.ServerOption) (address string) {
	t.Helper()
	server := grpc.NewServer(append(opts, grpc.WaitForHandlers(true))...)
	register(server)
	return xdstest.Serve(t, nil, server)
}

// GetAs reads a page, with another Host unless that is empty.
func GetAs(t testing.TB, url, host string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(testutils.Context(t), http.MethodGet, url, nil)
	xdstest.NoError(t, err)
	r.Host = host
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(r)
	xdstest.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	xdstest.NoError(t, err)
	return resp.StatusCode, string(text)
}

// Get reads a page, whose status must be 200.
func Get(t testing.TB, url string) (body string) {
	t.Helper()
	status, body := GetAs(t, url, "")
	if status != http.StatusOK {
		t.Fatalf("GET %s: status %d, want 200: %s", url, status, body)
	}
	return body
}

// Await calls check until it returns "". The test fails with its last result if that takes too long.
func Await(t testing.TB, check func() (missing string)) {
	t.Helper()
	for ctx := testutils.Context(t); ; {
		missing := check()
		if missing == "" {
			return
		}
		if retries.Wait(ctx, 10*time.Millisecond) != nil {
			t.Fatal(missing)
		}
	}
}

// LackingLines returns the lines that a text does not have.
func LackingLines(text string, lines ...string) (lacking []string) {
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			lacking = append(lacking, line)
		}
	}
	return lacking
}

// ErrorHas fails the test unless there is an error that has all of the texts. what says what failed.
func ErrorHas(t testing.TB, what string, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: got error %v, want one with %q", what, err, text)
		}
	}
}

// Stream is an ADS stream on which the test itself sends each request. Its messages have the fields of
// xRFC TP2; other peers ignore these.
type Stream[Request, Response any] struct {
	t      testing.TB
	stream grpc.BidiStreamingClient[Request, Response]
	// Cancel ends the stream.
	Cancel context.CancelFunc
}

// Send sends a request.
func (s *Stream[Request, Response]) Send(r *Request) {
	s.t.Helper()
	xdstest.NoError(s.t, s.stream.Send(r))
}

// Recv returns the next response.
func (s *Stream[Request, Response]) Recv() *Response {
	s.t.Helper()
	response, err := s.stream.Recv()
	xdstest.NoError(s.t, err)
	return response
}

// Err returns the error with which the stream ends, the responses before it left out.
func (s *Stream[Request, Response]) Err() error {
	for {
		if _, err := s.stream.Recv(); err != nil {
			return err
		}
	}
}

// Exchange sends a request, and returns the next response.
func (s *Stream[Request, Response]) Exchange(r *Request) *Response {
	s.t.Helper()
	s.Send(r)
	return s.Recv()
}

// SotW opens a stream of the state-of-the-world protocol.
func SotW(t testing.TB, conn *grpc.ClientConn) *Stream[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse] {
	t.Helper()
	return open[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse](t, conn, "StreamAggregatedResources")
}

// Delta opens a stream of the delta protocol.
func Delta(t testing.TB, conn *grpc.ClientConn) *Stream[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse] {
	t.Helper()
	return open[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse](t, conn, "DeltaAggregatedResources")
}

func open[Request, Response any](t testing.TB, conn *grpc.ClientConn, method string) *Stream[Request, Response] {
	t.Helper()
	// A test may wait for several things, as long as testutils.Context each, while a stream is open.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/"+method)
	xdstest.NoError(t, err)
	return &Stream[Request, Response]{t, &grpc.GenericClientStream[Request, Response]{ClientStream: stream}, cancel}
}
