package bootstrap

import (
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/credentials/tls/certprovider"
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
	bearer   = `call_credentials_plugin { [TYPES.call_credentials.access_token.v3.AccessTokenCredentials] { token: %q } } `
)

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
	port, seen := seenBy(t, ca.ServerConfig())
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
	c.CertificateProviders["panics"] = &CertificateProvider{Buildable: certprovider.NewBuildableConfig("", nil, func(certprovider.BuildOptions) certprovider.Provider { return pluginProvider{} })}
	if err := with("panics", "mine"); err == nil || !strings.Contains(err.Error(), "it panicked: ") {
		t.Errorf("a plugin that panics: %v", err)
	}
	s, err := c.Service(googleGrpc(t, `target_uri: "a" `+viaPlain+fmt.Sprintf(bearer, "secret")), true)
	xdstest.NoError(t, err)
	if _, _, err := s.DialOptions(); err == nil || !strings.Contains(err.Error(), "call_creds of type access_token are sent over secure connections only") {
		t.Errorf("a token over plaintext: %v", err)
	}
}
