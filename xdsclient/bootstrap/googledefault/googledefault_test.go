package googledefault_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	_ "github.com/dynxds/dynxds/xdsclient/bootstrap/googledefault"
)

// system is the only root of the system. It stays the same under -count, as Go reads the
// system's roots once.
var system *testca.CA

// TestGoogleDefault: given a management server that the system's roots vouch for and a
// service account in the environment, when the server is dialled with credentials of type
// google_default, then it gets the account's token over TLS.
func TestGoogleDefault(t *testing.T) {
	if system == nil {
		system = testca.New(t)
	}
	dir := testca.NewFiles(t)
	dir.Issue(system)
	t.Setenv("SSL_CERT_FILE", dir.CA)
	t.Setenv("SSL_CERT_DIR", t.TempDir())
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", serviceAccount(t))
	port, authorization := serve(t, dir)

	config, err := bootstrap.Parse("test", fmt.Appendf(nil,
		`{"xds_servers": [{"server_uri": "dns:///localhost:%d", "channel_creds": [{"type": "google_default"}, {"type": "insecure"}]}]}`, port))
	xdstest.NoError(t, err)
	server := config.Servers[0]
	if server.CredentialsType != "google_default" {
		t.Fatalf("got credentials of type %s, want google_default", server.CredentialsType)
	}
	options, release, err := server.DialOptions()
	xdstest.NoError(t, err)
	defer release()
	conn, err := grpc.NewClient(server.URI, options...)
	xdstest.NoError(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	xdstest.Equal(t, "the authorization that the server got",
		"Bearer from-the-token-endpoint", <-authorization)
}

// serviceAccount writes the key of a service account whose token endpoint is a local one.
func serviceAccount(t *testing.T) (path string) {
	t.Helper()
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token": "from-the-token-endpoint", "token_type": "Bearer", "expires_in": 3600}`)
	}))
	t.Cleanup(endpoint.Close)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	xdstest.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	xdstest.NoError(t, err)
	account, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "test@example.com", "private_key_id": "1", "token_uri": endpoint.URL,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	xdstest.NoError(t, err)
	path = filepath.Join(t.TempDir(), "account.json")
	xdstest.NoError(t, os.WriteFile(path, account, 0o600))
	return path
}

// serve runs a TLS server on localhost, and sends the authorization of each RPC.
func serve(t *testing.T, dir testca.Files) (port int, authorization <-chan string) {
	t.Helper()
	creds, err := credentials.NewServerTLSFromFile(dir.Cert, dir.Key)
	xdstest.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	seen := make(chan string, 1)
	server := grpc.NewServer(grpc.Creds(creds), grpc.UnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			seen <- strings.Join(md.Get("authorization"), ",")
			return handler(ctx, req)
		}))
	healthpb.RegisterHealthServer(server, health.NewServer())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return listener.Addr().(*net.TCPAddr).Port, seen
}
