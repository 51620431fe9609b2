package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestConfigDoesNotShareTheInput(t *testing.T) {
	t.Parallel()
	data := []byte(documentOf(t, "every key"))
	c, err := Parse("", data)
	xdstest.NoError(t, err)
	clear(data)
	if !json.Valid(c.CertificateProviders["files"].Config) {
		t.Error("a kept configuration changed together with the buffer it was parsed from")
	}
}

// Another node is another client: nothing else differs, but the fingerprint does.
func TestWithNode(t *testing.T) {
	t.Parallel()
	c := mustParse(t, documentOf(t, "every key"))
	other := c.WithNode(&corev3.Node{Id: "b"})
	if c.Node.GetId() != "n" || other.Node.GetId() != "b" || other.Servers[0] != c.Servers[0] {
		t.Errorf("got nodes %q and %q", c.Node.GetId(), other.Node.GetId())
	}
	if other.Fingerprint() == c.Fingerprint() || other.WithNode(c.Node).Fingerprint() != c.Fingerprint() {
		t.Error("the fingerprint is not that of the node")
	}
	// xdsclient names the folder of a cache by the client without its cache.
	cached, plain := mustParse(t, `{`+servers+`, "resource_cache": {"directory": "d"}}`), mustParse(t, `{`+servers+`}`)
	without := *cached
	if without.ResourceCache.Directory = ""; without.WithNode(plain.Node).Fingerprint() != plain.Fingerprint() {
		t.Error("without its resource cache the fingerprint differs")
	}
}

// The key of a server goes into logs, and its credentials do not.
func TestServerKeyHidesCredentials(t *testing.T) {
	t.Parallel()
	if key := mustParse(t, documentOf(t, "every key")).Servers[0].Key(); strings.Contains(key, "/tls") {
		t.Errorf("the key %q shows the configuration of the credentials", key)
	}
}

func TestFromEnv(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.json")
	xdstest.NoError(t, os.WriteFile(path, []byte("{"+servers+"}"), 0o600))
	large := filepath.Join(t.TempDir(), "large.json")
	xdstest.NoError(t, os.WriteFile(large, make([]byte, maxSize+1), 0o600))
	missing := filepath.Join(t.TempDir(), "missing.json")
	directory, err := os.Getwd()
	xdstest.NoError(t, err)
	pipe := filepath.Join(t.TempDir(), "pipe.json")
	xdstest.NoError(t, exec.Command("mkfifo", pipe).Run())
	inline := "{" + servers + "}"

	for _, test := range []struct {
		given, file, inline string
		wantSource, wantErr string
		wantIs              error
	}{
		{given: "a file", file: path, wantSource: path},
		{given: "inline", inline: inline, wantSource: "GRPC_XDS_BOOTSTRAP_CONFIG"},
		{given: "both", file: path, inline: "wrong", wantSource: path},
		{given: "neither", wantIs: ErrNotConfigured,
			wantErr: "no xDS bootstrap is configured: set GRPC_XDS_BOOTSTRAP to the path of a bootstrap file, or GRPC_XDS_BOOTSTRAP_CONFIG to its content"},
		{given: "a file that is missing", file: missing, inline: inline, wantIs: fs.ErrNotExist,
			wantErr: "cannot read the xDS bootstrap that GRPC_XDS_BOOTSTRAP names: stat " + missing + ": no such file or directory"},
		{given: "a relative path that is missing", file: "b.json", wantErr: "cannot read the xDS bootstrap that GRPC_XDS_BOOTSTRAP names, in the working directory " +
			directory + ": stat b.json: no such file or directory; an absolute path does not depend on it"},
		{given: "a file that is too large", file: large,
			wantErr: "cannot read the xDS bootstrap that GRPC_XDS_BOOTSTRAP names: " + large + " has more than the 4194304 bytes that are allowed"},
		{given: "a pipe without a writer", file: pipe, inline: inline,
			wantErr: "cannot read the xDS bootstrap that GRPC_XDS_BOOTSTRAP names: " + pipe +
				" is not a regular file; what another program writes can be the content of GRPC_XDS_BOOTSTRAP_CONFIG"},
		{given: "content in place of a path", file: " " + inline,
			wantErr: "GRPC_XDS_BOOTSTRAP has a bootstrap itself, where the path of a file is expected; set GRPC_XDS_BOOTSTRAP_CONFIG to it instead"},
		{given: "a path in place of content", inline: path,
			wantErr: "xDS bootstrap GRPC_XDS_BOOTSTRAP_CONFIG: not JSON: line 1, column 1: invalid character '/' looking for beginning of value; " +
				"the path of a file belongs in GRPC_XDS_BOOTSTRAP"},
		{given: "wrong text inline", inline: "{}",
			wantErr: "xDS bootstrap GRPC_XDS_BOOTSTRAP_CONFIG: xds_servers: expected a list with at least one management server, found nothing"},
	} {
		t.Run(test.given, func(t *testing.T) {
			t.Setenv(envFile, test.file)
			t.Setenv(envInline, test.inline)
			c, err := FromEnv()
			if test.wantErr == "" {
				if err != nil || c.Source != test.wantSource {
					t.Fatalf("got %+v, %v, want a bootstrap from %s", c, err, test.wantSource)
				}
				return
			}
			if err == nil || err.Error() != test.wantErr {
				t.Errorf("got error %v, want %s", err, test.wantErr)
			}
			if test.wantIs != nil && !errors.Is(err, test.wantIs) {
				t.Errorf("the error is no %v", test.wantIs)
			}
		})
	}
}

// The environment can trust servers that the document does not, of any authority.
func TestTrustedServersOfTheEnvironment(t *testing.T) {
	const creds = `"channel_creds": [{"type": "insecure"}]`
	t.Setenv(envFile, "")
	t.Setenv(envInline, `{"xds_servers": [{"server_uri": "unix:///./xds", `+creds+`, "server_features": ["xds_v3"]}, {"server_uri": "b", `+creds+`}],
		"authorities": {"a": {"xds_servers": [{"server_uri": "c", `+creds+`, "server_features": ["delta", "trusted_xds_server"]}]}}}`)
	for _, test := range []struct {
		trusted string
		want    []bool
	}{
		{"", []bool{false, false, true}},
		{"unix:///./xds", []bool{true, false, true}},
		{" b ,c,d", []bool{false, true, true}},
		{"unix:///xds", []bool{false, false, true}},
	} {
		t.Setenv(envTrusted, test.trusted)
		c, err := FromEnv()
		xdstest.NoError(t, err)
		for i, s := range append(c.Servers, c.Authorities["a"].Servers...) {
			if got := s.HasFeature(FeatureTrustedXDSServer); got != test.want[i] || !slices.IsSorted(s.Features) {
				t.Errorf("%q: server %s is trusted: %t, want %t, with sorted features %v", test.trusted, s, got, test.want[i], s.Features)
			}
		}
	}
	trusted, err := FromEnv()
	xdstest.NoError(t, err)
	if plain := mustParse(t, os.Getenv(envInline)); plain.Servers[0].HasFeature(FeatureTrustedXDSServer) || plain.Fingerprint() != trusted.Fingerprint() {
		t.Error("Parse depends on the environment, or a variable without a match changes the fingerprint")
	}
}

// An entry of DYNXDS_TRUSTED_XDS_SERVERS that is no server of the bootstrap trusts nobody, which is said once, with the
// servers that there are.
func TestTrustedServersThatAreNoneAreLogged(t *testing.T) {
	const server = `[{"server_uri": %q, "channel_creds": [{"type": "insecure"}]}]`
	text := `{"xds_servers": ` + fmt.Sprintf(server, "unix:///etc/istio/proxy/XDS") + `, "authorities": {"a": {"xds_servers": ` + fmt.Sprintf(server, "dns:///a:443") + `}}}`
	t.Setenv("GRPC_XDS_BOOTSTRAP", "")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", text)
	t.Setenv("DYNXDS_TRUSTED_XDS_SERVERS", " dns:///a:443 , unix:///./etc/istio/proxy/XDS,")
	for range 2 {
		_, err := FromEnv()
		xdstest.NoError(t, err)
	}
	xdstest.Equal(t, "warnings", []string{
		`, which is no server_uri of the bootstrap, so no server is trusted by that entry; the bootstrap has "unix:///etc/istio/proxy/XDS", "dns:///a:443"`,
	}, logged.After(`xDS bootstrap GRPC_XDS_BOOTSTRAP_CONFIG: DYNXDS_TRUSTED_XDS_SERVERS names "unix:///./etc/istio/proxy/XDS"`))
}
