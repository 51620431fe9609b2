package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/jsondoc"
)

// CertificateProvider is one certificate provider instance (gRFC A29).
type CertificateProvider struct {
	// PluginName is the name of the plugin: "file_watcher", which is built in, or one that
	// is registered in google.golang.org/grpc/credentials/tls/certprovider.
	PluginName string
	// Config is the JSON object for the plugin; "{}" if the document has none. It may hold
	// secrets.
	Config json.RawMessage
	// Buildable builds the provider from Config. It is nil if the program has no plugin of
	// that name: like gRPC's, the bootstrap is valid, and a Cluster that names the
	// instance is not.
	Buildable *certprovider.BuildableConfig

	panicked sync.Once
}

// Build builds the provider. A panic of the plugin, now or later, is an error.
func (p *CertificateProvider) Build(options certprovider.BuildOptions) (_ certprovider.Provider, err error) {
	defer p.recovered(&err)
	provider, err := p.Buildable.Build(options)
	if err != nil {
		// gRPC's error says no more than this, but for the configuration, which may hold secrets.
		return nil, errors.New("its plugin did not start it")
	}
	return guarded{provider, p}, nil
}

// recovered makes a panic of the plugin the error. The first one is logged, without the lock that the caller may hold.
func (p *CertificateProvider) recovered(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("it panicked: %s", bounds.Text(fmt.Sprint(v), bounds.ErrorText))
		p.panicked.Do(func() {
			go logger.Errorf("certificate provider plugin %s: %v\n%s", faults.Quote(p.PluginName), *err, debug.Stack())
		})
	}
}

// guarded is a provider whose plugin may panic, and may have nothing.
type guarded struct {
	certprovider.Provider
	of *CertificateProvider
}

func (g guarded) KeyMaterial(ctx context.Context) (m *certprovider.KeyMaterial, err error) {
	defer g.of.recovered(&err)
	if m, err = g.Provider.KeyMaterial(ctx); m == nil && err == nil {
		err = errors.New("it has none")
	}
	return m, err
}

func (g guarded) Close() {
	defer g.of.recovered(new(error))
	g.Provider.Close()
}

func parseProviders(v jsondoc.Value) map[string]*CertificateProvider {
	providers := make(map[string]*CertificateProvider)
	for name, entry := range v.Entries() {
		o := entry.Object("plugin_name", "config")
		plugin, hasName := o.Field("plugin_name").NonEmptyText("the name of a certificate provider plugin")
		config, hasConfig := parsePluginConfig(o)
		if hasName && hasConfig {
			providers[name] = &CertificateProvider{PluginName: plugin, Config: textOf(config), Buildable: parseProvider(plugin, config)}
		}
	}
	return providers
}

// unknownPlugin starts the error of certprovider.ParseConfig for a plugin that is not
// registered. There is no other way to ask.
const unknownPlugin = "no certificate provider builder found"

func parseProvider(plugin string, config jsondoc.Value) *certprovider.BuildableConfig {
	if plugin == certfiles.PluginName {
		return parseFileWatcher(config)
	}
	buildable, err := certprovider.ParseConfig(plugin, textOf(config))
	if err != nil && !strings.HasPrefix(err.Error(), unknownPlugin) {
		config.Fault("", "expected a configuration that plugin %s accepts; it says: %s", faults.Quote(plugin), redact(textOf(config), err.Error()))
	}
	return buildable
}

func parseFileWatcher(config jsondoc.Value) *certprovider.BuildableConfig {
	o := config.Object(append(certfiles.Keys(), serverIDs)...)
	files := certfiles.Read(o)
	if ids := o.Field(serverIDs); ids.Present() {
		ids.Fault("", "is for the credentials of a management server; which servers of a Cluster are accepted is up to match_typed_subject_alt_names in the Cluster")
	}
	if !slices.ContainsFunc(certfiles.Keys(), func(key string) bool { return strings.HasSuffix(key, "_file") && !o.Field(key).Absent() }) {
		config.Fault("", "expected certificate_file with private_key_file, ca_certificate_file or spiffe_trust_bundle_map_file, found none of them")
	}
	return files.Buildable()
}
