package bootstrap

import (
	"context"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// token is a JWT that expires at the given time. Clients do not check signatures.
func token(expiry time.Time) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg":"none"}`)) + "." + part(fmt.Appendf(nil, `{"exp":%d}`, expiry.Unix())) + ".signature"
}

// secureServer runs a management server with TLS that has the given call_creds in the
// bootstrap, and returns it with the metadata of the RPCs that reach it.
func secureServer(t *testing.T, callCreds string) (*Server, <-chan metadata.MD) {
	t.Helper()
	ca, dir := testca.New(t), testca.NewFiles(t)
	dir.Issue(ca)
	port, seen := seenBy(t, ca.ServerConfig())
	return tlsServer(t, port, config(dir, "60s"), `"call_creds": `+callCreds), seen
}

// dialable is a Server or a Service.
type dialable interface {
	DialOptions() ([]grpc.DialOption, func(), error)
	String() string
}

// check dials the server and sends one RPC.
func check(t *testing.T, s dialable) error {
	t.Helper()
	credentials, release, err := s.DialOptions()
	if err != nil {
		return err
	}
	defer release()
	return checkWith(t, s, credentials)
}

func checkWith(t *testing.T, s dialable, credentials []grpc.DialOption) error {
	t.Helper()
	conn, err := grpc.NewClient(s.String(), credentials...)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

func jwtCreds(path string) string {
	return fmt.Sprintf(`{"type": "jwt_token_file", "config": {"jwt_token_file": %q}}`, path)
}

// gRFC A97: "the client will look through the entire list and use all types that it
// supports", and the header is "authorization" with "Bearer " before the token.
func TestAllSupportedCallCredentialsAreSent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	text := token(time.Now().Add(time.Hour))
	testca.NewFiles(t).Write(path, []byte(text+"\n"))
	server, seen := secureServer(t, `[{"type": "unknown", "config": {"jwt_token_file": 1}}, `+jwtCreds(path)+`, {"type": "test-header", "config": {"a": 1}}]`)
	before := callReleases.Load()
	xdstest.NoError(t, check(t, server))
	md := <-seen
	xdstest.Equal(t, "the authorization that the server got",
		"Bearer "+text, strings.Join(md.Get("authorization"), ","))
	xdstest.Equal(t, "what the other call credentials sent",
		`{"a": 1}`, strings.Join(md.Get("config"), ","))
	xdstest.Equal(t, "how often the call credentials were released",
		1, callReleases.Load()-before)
}

// gRFC A97: a file that cannot be read is UNAVAILABLE, a token without an expiration time
// is UNAUTHENTICATED.
func TestTokenFilesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, test := range []struct {
		given, content string
		code           codes.Code
	}{
		{"missing", "", codes.Unavailable},
		{"no token", "s3cret-token", codes.Unauthenticated},
		{"no expiration", "e30.e30.e30", codes.Unauthenticated},
		{"expired", token(time.Now().Add(-time.Hour)), codes.Unauthenticated},
	} {
		path := filepath.Join(dir, test.given)
		if test.content != "" {
			testca.NewFiles(t).Write(path, []byte(test.content))
		}
		server, _ := secureServer(t, "["+jwtCreds(path)+"]")
		err := check(t, server)
		if status.Code(err) != test.code || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got error %v, want %v with the path", test.given, err, test.code)
		}
		if strings.Contains(fmt.Sprint(err), "s3cret") {
			t.Errorf("%s: the error shows the content of the file: %v", test.given, err)
		}
	}
}
