package bootstrap

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// googleGrpc makes a message of text. {pluginTypes} stands for the types of credentials.
func googleGrpc(t *testing.T, text string) *corev3.GrpcService_GoogleGrpc {
	t.Helper()
	pb := new(corev3.GrpcService_GoogleGrpc)
	xdstest.NoError(t, prototext.Unmarshal([]byte(strings.ReplaceAll(text, "TYPES.", pluginTypes)), pb))
	return pb
}

const (
	viaTLS   = `channel_credentials_plugin { [TYPES.channel_credentials.tls.v3.TlsCredentials] { %s } } `
	viaPlain = `channel_credentials_plugin { [TYPES.channel_credentials.insecure.v3.InsecureCredentials] {} } `
	viaXDS   = `channel_credentials_plugin { [TYPES.channel_credentials.xds.v3.XdsCredentials] { %s } } `
	unknown  = `channel_credentials_plugin { type_url: "type.googleapis.com/unknown" } `
	bearer   = `call_credentials_plugin { [TYPES.call_credentials.access_token.v3.AccessTokenCredentials] { token: %q } } `
)

// gRFC A102, "Security Considerations": a server that is not trusted can name a service of allowed_grpc_services only, and its
// credentials are ignored; a trusted one can name any, with credentials.
func TestServicesThatAServerMayName(t *testing.T) {
	t.Parallel()
	c := mustParse(t, `{`+servers+`, "allowed_grpc_services": {"dns:///a:1": {"channel_creds": [{"type": "test-token"}, {"type": "insecure"}]}}}`)
	for _, test := range []struct {
		name, text string
		trusted    bool
		want       string // the type of credentials
		err        string
	}{
		{name: "allowed", text: `target_uri: "dns:///a:1"`, want: "test-token"},
		{name: "allowed, other credentials", text: `target_uri: "dns:///a:1" ` + viaPlain, want: "test-token"},
		{name: "not allowed", text: `target_uri: "dns:///b:1" ` + viaPlain, err: `target_uri: "dns:///b:1" is not in allowed_grpc_services of the bootstrap, and the management server does not have trusted_xds_server (gRFC A102)`},
		{name: "the same by another name", text: `target_uri: "a:1"`, err: `target_uri: "a:1" is not in allowed_grpc_services`},
		{name: "trusted", text: `target_uri: "b:1" ` + viaPlain, trusted: true, want: "insecure"},
		{name: "trusted, allowed without credentials", text: `target_uri: "dns:///a:1"`, trusted: true, err: "channel_credentials_plugin: must have credentials of a type that this program supports"},
		// "GrpcService Proto Validation".
		{name: "no target", trusted: true, err: "target_uri: must not be empty"},
		{name: "no gRPC target", text: `target_uri: "a%zz" ` + viaPlain, trusted: true, err: `target_uri: "a%zz" is not a gRPC target`},
		// "Credential Configuration in GrpcService Proto".
		{name: "the first that is supported", text: `target_uri: "a" ` + unknown + viaPlain + fmt.Sprintf(viaTLS, ""), trusted: true, want: "insecure"},
		{name: "none that is supported", text: `target_uri: "a" ` + unknown, trusted: true, err: "channel_credentials_plugin: must have"},
		{name: "invalid before valid", text: `target_uri: "a" ` + fmt.Sprintf(viaTLS, "") + viaPlain, trusted: true, err: "channel_credentials_plugin[0]: root_certificate_provider: must be set"},
		{name: "no such instance", text: `target_uri: "a" ` + fmt.Sprintf(viaTLS, `root_certificate_provider { instance_name: "other" }`), trusted: true,
			err: `channel_credentials_plugin[0]: root_certificate_provider: instance_name: "other" is not in certificate_providers of the bootstrap`},
		{name: "xds", text: `target_uri: "a" ` + fmt.Sprintf(viaXDS, `fallback_credentials { [TYPES.channel_credentials.insecure.v3.InsecureCredentials] {} }`), trusted: true, want: "xds"},
		{name: "xds in xds", text: `target_uri: "a" ` + fmt.Sprintf(viaXDS, `fallback_credentials { [TYPES.channel_credentials.xds.v3.XdsCredentials] {} }`), trusted: true, err: "channel_credentials_plugin[0]: fallback_credentials: must not be xds credentials again"},
		{name: "xds without fallback", text: `target_uri: "a" ` + fmt.Sprintf(viaXDS, ""), trusted: true, err: "channel_credentials_plugin[0]: fallback_credentials: must be set to credentials of a type that this program supports"},
		{name: "unknown call credentials", text: `target_uri: "a" ` + viaPlain + `call_credentials_plugin { type_url: "type.googleapis.com/unknown" }`, trusted: true, want: "insecure"},
		{name: "an empty token", text: `target_uri: "a" ` + viaPlain + fmt.Sprintf(bearer, ""), trusted: true, err: "call_credentials_plugin[0]: token: must not be empty"},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			s, err := c.Service(googleGrpc(t, test.text), test.trusted)
			if test.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), test.err) {
					t.Errorf("error %v, want %s", err, test.err)
				}
				return
			}
			xdstest.NoError(t, err)
			xdstest.Equal(t, "type of credentials", test.want, s.CredentialsType)
			_, release, err := s.DialOptions()
			xdstest.NoError(t, err)
			release()
		})
	}
}

// One connection serves what has the same target and credentials.
func TestServiceKey(t *testing.T) {
	t.Parallel()
	document := `{` + servers + `, "node": {"id": %q}, "allowed_grpc_services": {"a": {"channel_creds": [{"type": "insecure"}]}}}`
	c, other := mustParse(t, fmt.Sprintf(document, "1")), mustParse(t, fmt.Sprintf(document, "2"))
	key := func(c *Config, text string, trusted bool) string {
		s, err := c.Service(googleGrpc(t, text), trusted)
		xdstest.NoError(t, err)
		return s.Key()
	}
	plain, secret := `target_uri: "a" `+viaPlain, `target_uri: "a" `+viaPlain+fmt.Sprintf(bearer, "secret")
	xdstest.Equal(t, "allowed by two bootstraps", key(c, plain, false), key(other, plain, false))
	xdstest.Equal(t, "trusted twice", key(c, plain, true), key(c, plain, true))
	if key(c, plain, true) == key(c, secret, true) || key(c, plain, true) == key(c, plain, false) ||
		key(c, plain, true) == key(other, plain, true) || key(c, plain, true) == key(c, strings.Replace(plain, `"a"`, `"b"`, 1), true) {
		t.Error("equal keys of different credentials or targets")
	}
}

// gRFC A102, "Credential Configuration in GrpcService Proto": TLS with the bootstrap's certificate providers, and an access token,
// which is sent over secure connections only.
func TestCredentialsOfATrustedServer(t *testing.T) {
	t.Parallel()
	ca, dir, other := testca.New(t), testca.NewFiles(t), testca.NewFiles(t)
	dir.Issue(ca)
	other.Issue(testca.New(t))
	seen := make(chan metadata.MD, 1)
	port := serveTLS(t, ca.ServerConfig(), grpc.UnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			seen <- md
			return handler(ctx, req)
		}))
	c := mustParse(t, fmt.Sprintf(`{%s, "certificate_providers": {"mine": {"plugin_name": "file_watcher", "config": %s}, "other": {"plugin_name": "file_watcher", "config": %s}}}`,
		servers, config(dir, "60s"), config(other, "60s")))
	with := func(roots, identity string) error {
		t.Helper()
		text := fmt.Sprintf(`target_uri: "dns:///localhost:%d" `+viaTLS+bearer, port,
			fmt.Sprintf(`root_certificate_provider { instance_name: %q } identity_certificate_provider { instance_name: %q }`, roots, identity), "secret")
		s, err := c.Service(googleGrpc(t, text), true)
		xdstest.NoError(t, err)
		return check(t, s)
	}
	xdstest.NoError(t, with("mine", "mine"))
	xdstest.Equal(t, "authorization", "Bearer secret", strings.Join((<-seen).Get("authorization"), ","))
	if err := with("other", "mine"); err == nil || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
		t.Errorf("roots that did not sign the server's certificate: %v", err)
	}
	if err := with("mine", "other"); err == nil || !strings.Contains(err.Error(), `the server may have refused the client's certificate`) {
		t.Errorf("a client's certificate that the server does not take: %v", err)
	}
	s, err := c.Service(googleGrpc(t, `target_uri: "a" `+viaPlain+fmt.Sprintf(bearer, "secret")), true)
	xdstest.NoError(t, err)
	if _, _, err := s.DialOptions(); err == nil || !strings.Contains(err.Error(), "call_creds of type access_token are sent over secure connections only") {
		t.Errorf("a token over plaintext: %v", err)
	}
}
