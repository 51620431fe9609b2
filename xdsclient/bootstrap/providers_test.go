package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// fakePlugin is a certificate provider plugin that a program has registered.
type fakePlugin struct {
	name  string
	parse func(json.RawMessage) error
}

func (p fakePlugin) Name() string { return p.name }

func (p fakePlugin) ParseConfig(config any) (*certprovider.BuildableConfig, error) {
	raw := config.(json.RawMessage)
	if err := p.parse(raw); err != nil {
		return nil, err
	}
	return certprovider.NewBuildableConfig(p.name, raw, func(certprovider.BuildOptions) certprovider.Provider { return fakeProvider{} }), nil
}

type fakeProvider struct{}

var errNoMaterial = errors.New("no material")

func (fakeProvider) KeyMaterial(context.Context) (*certprovider.KeyMaterial, error) {
	return nil, errNoMaterial
}

func (fakeProvider) Close() {}

func init() {
	certprovider.Register(fakePlugin{"test-plugin", func(config json.RawMessage) error {
		if strings.Contains(string(config), "refuse") {
			return errors.New("no")
		}
		return nil
	}})
	certprovider.Register(fakePlugin{"test-decoder", func(config json.RawMessage) error {
		var v map[string]any
		err := json.Unmarshal(config, &v)
		return fmt.Errorf("unexpected value %v (%v)", v, err)
	}})
}

func TestCertificateProviders(t *testing.T) {
	t.Parallel()
	dir := testca.NewFiles(t)
	c := mustParse(t, fmt.Sprintf(`{%s, "certificate_providers": {
		"files": {"plugin_name": "file_watcher", "config": {"certificate_file": %q, "private_key_file": %q, "ca_certificate_file": %q, "refresh_interval": "900s"}},
		"own": {"plugin_name": "test-plugin", "config": {"k": 1}},
		"foreign": {"plugin_name": "vault", "config": {"address": "https://vault"}}
	}}`, servers, dir.Cert, dir.Key, dir.CA))
	build := func(name string) certprovider.Provider {
		t.Helper()
		p, err := c.CertificateProviders[name].Buildable.Build(certprovider.BuildOptions{WantRoot: true, WantIdentity: true})
		xdstest.NoError(t, err)
		t.Cleanup(p.Close)
		return p
	}

	// The files may come after the bootstrap, and an error names the one that is missing.
	files := build("files")
	_, err := files.KeyMaterial(t.Context())
	if want := "ca_certificate_file: stat " + dir.CA + ": no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("without files: got error %v, want %s", err, want)
	}
	dir.Issue(testca.New(t))
	if m, err := files.KeyMaterial(t.Context()); err != nil || len(m.Certs) != 1 || m.Roots == nil {
		t.Errorf("with files: got %+v and error %v, want an identity and roots", m, err)
	}

	if _, err := build("own").KeyMaterial(t.Context()); !errors.Is(err, errNoMaterial) {
		t.Errorf("a registered plugin: got error %v, want its own", err)
	}

	// gRPC-Go ignores plugins that it does not have: other programs read the same file.
	foreign := c.CertificateProviders["foreign"]
	if foreign.Buildable != nil || foreign.PluginName != "vault" || string(foreign.Config) != `{"address": "https://vault"}` {
		t.Errorf("an unknown plugin: got %+v, want it kept and not buildable", foreign)
	}
}
