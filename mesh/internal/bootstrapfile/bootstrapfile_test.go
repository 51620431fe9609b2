package bootstrapfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/bootstrapfile"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

func TestEveryOptionReachesTheClient(t *testing.T) {
	t.Parallel()
	opts := bootstrapfile.Options{
		Servers:  []string{"dns:///one:443", "dns:///two:443"},
		Features: []string{"delta"},
		TLS:      true,
		CA:       "/ca.pem",
		Cert:     "/cert.pem",
		Key:      "/key.pem",
		MeshCA:   "/mesh-ca.pem",
		MeshCert: "/mesh-cert.pem",
		MeshKey:  "/mesh-key.pem",
		Token:    "/token",

		ServerTemplate: "grpc/server/%s",

		NodeID:      "frontend-1",
		NodeCluster: "frontend",
		Locality:    "eu/a",
		Metadata:    map[string]string{"version": "v2", "env": "prod"},
		Constrained: []string{"env"},
		Authority:   "mesh",
		DNSFallback: "never",
	}
	text, err := opts.JSON()
	xdstest.NoError(t, err)
	c, err := bootstrap.Parse("test", text)
	xdstest.NoError(t, err)
	if len(c.Servers) != 2 || c.Servers[1].URI != "dns:///two:443" {
		t.Errorf("the servers are %v", c.Servers)
	}
	for _, s := range c.Servers {
		if !s.HasFeature(bootstrap.FeatureDelta) || !s.HasFeature(bootstrap.FeatureDynamicParameterConstraints) {
			t.Errorf("the features of %s are %v, want delta, and what DPDS takes", s.URI, s.Features)
		}
	}
	node := c.Node
	got := []string{node.GetId(), node.GetCluster(), node.GetLocality().GetRegion(), node.GetLocality().GetZone(),
		node.GetLocality().GetSubZone(), node.GetMetadata().GetFields()["version"].GetStringValue()}
	xdstest.Equal(t, "the node", []string{"frontend-1", "frontend", "eu", "a", "", "v2"}, got)
	xdstest.Equal(t, "the constraints", "{env=prod}", c.Constraints.For("any").String())
	want := "xdstp://mesh/envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap/client"
	xdstest.Equal(t, "the DPDS resource", want, c.Authorities["mesh"].DynamicParameterConstraintsResource)
	want = "xdstp://a!b%20c/envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap/client"
	xdstest.Equal(t, "the DPDS resource of an authority to encode", want, bootstrapfile.DPDSName("a!b c"))
	xdstest.Equal(t, "the DNS fallback", bootstrap.DNSFallbackNever, c.DNSFallback)
	if p := c.CertificateProviders["default"]; p == nil || p.PluginName != "file_watcher" || p.Buildable == nil {
		t.Errorf("the certificate providers are %v, want default, of files", c.CertificateProviders)
	}
	xdstest.Equal(t, "the template of servers' Listeners", "grpc/server/%s", c.ServerListenerTemplate)
	for _, file := range []string{"/ca.pem", "/cert.pem", "/key.pem", "/mesh-ca.pem", "/mesh-cert.pem", "/mesh-key.pem", "/token"} {
		if !strings.Contains(string(text), file) {
			t.Errorf("%s is not in the bootstrap:\n%s", file, text)
		}
	}
}

// Only the locality is added to what was asked for: without it grpc-js fails every RPC.
func TestMinimalBootstrap(t *testing.T) {
	t.Parallel()
	opts := bootstrapfile.Options{Servers: []string{"localhost:18000"}, NodeID: "a"}
	text, err := opts.JSON()
	xdstest.NoError(t, err)
	want := `{
  "xds_servers": [
    {
      "server_uri": "localhost:18000",
      "channel_creds": [
        {
          "type": "insecure"
        }
      ]
    }
  ],
  "node": {
    "id": "a",
    "locality": {}
  }
}
`
	xdstest.Equal(t, "the bootstrap", want, string(text))
}

// The error names the faulty options.
func TestFaultyOptions(t *testing.T) {
	t.Parallel()
	one := []string{"localhost:18000"}
	for _, test := range []struct {
		name string
		opts bootstrapfile.Options
		want string
	}{
		{"no server", bootstrapfile.Options{}, "--server is missing"},
		{"files for TLS without TLS", bootstrapfile.Options{Servers: one, CA: "/ca.pem"}, "add --tls"},
		{"a token without TLS", bootstrapfile.Options{Servers: one, Token: "/token"}, "add --tls"},
		{"a locality of four parts", bootstrapfile.Options{Servers: one, Locality: "a/b/c/d"}, `--locality "a/b/c/d"`},
		{"a feature that is none", bootstrapfile.Options{Servers: one, Features: []string{"deltas"}}, `--feature "deltas"`},
		{"a name that is no authority", bootstrapfile.Options{Servers: one, Authority: "xdstp://mesh"}, `--authority "xdstp://mesh"`},
		{"a constrained key without a value", bootstrapfile.Options{Servers: one, Constrained: []string{"env"}}, "node_metadata_constraints"},
		{"an unknown fallback", bootstrapfile.Options{Servers: one, DNSFallback: "always"}, "dns_fallback"},
		{"a key for services without its certificate", bootstrapfile.Options{Servers: one, MeshKey: "/key.pem"}, `certificate_providers["default"].config.certificate_file`},
		{"a key without its certificate", bootstrapfile.Options{Servers: one, TLS: true, Key: "/key.pem"}, "certificate_file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			text, err := test.opts.JSON()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %s and error %v, want %s", text, err, test.want)
			}
		})
	}
}

// Options come before the environment.
func TestInPodWithOptions(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	xdstest.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
	opts := bootstrapfile.Options{
		Servers: []string{"other:1"}, CA: file, Token: file, NodeID: "me", Metadata: map[string]string{"namespace": "mine", "version": "v2"},
	}
	other := map[string]string{"DYNXDS_SERVER": "no:1", "DYNXDS_CA_FILE": "/no", "DYNXDS_TOKEN_FILE": "/no", "POD_NAMESPACE": "shop"}
	xdstest.NoError(t, opts.InPod(func(name string) string { return other[name] }))
	text, err := opts.JSON()
	xdstest.NoError(t, err)
	config, err := bootstrap.Parse("test", text)
	xdstest.NoError(t, err)
	metadata := config.Node.GetMetadata().GetFields()
	xdstest.Equal(t, "server, id and metadata", []string{"other:1", "me", "mine", "v2", ""}, []string{
		config.Servers[0].URI, config.Node.GetId(), metadata["namespace"].GetStringValue(), metadata["version"].GetStringValue(), metadata["node"].GetStringValue(),
	})
	if strings.Contains(string(text), "/no") {
		t.Errorf("the environment counts, though there are options:\n%s", text)
	}
}
