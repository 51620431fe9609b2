package bootstrap

import (
	"encoding/json"
	"strings"

	"google.golang.org/grpc/credentials/tls/certprovider"

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
}

func parseProviders(v jsondoc.Value) map[string]*CertificateProvider {
	if v.Absent() {
		return nil
	}
	providers := make(map[string]*CertificateProvider)
	for name, entry := range v.Entries() {
		o := entry.Object("plugin_name", "config")
		if !o.IsObject() {
			continue
		}
		plugin, hasName := o.Field("plugin_name").NonEmptyText("the name of a certificate provider plugin")
		config, hasConfig := parsePluginConfig(o.Field("config"))
		if hasName && hasConfig {
			providers[name] = &CertificateProvider{PluginName: plugin, Config: config.raw, Buildable: parseProvider(plugin, config)}
		}
	}
	return providers
}

// unknownPlugin starts the error of certprovider.ParseConfig for a plugin that is not
// registered. There is no other way to ask.
const unknownPlugin = "no certificate provider builder found"

func parseProvider(plugin string, config pluginConfig) *certprovider.BuildableConfig {
	if plugin == certfiles.PluginName {
		return parseFileWatcher(config)
	}
	buildable, err := certprovider.ParseConfig(plugin, config.raw)
	if err != nil && !strings.HasPrefix(err.Error(), unknownPlugin) {
		config.Fault("", "expected a configuration that plugin %s accepts; it says: %s", faults.Quote(plugin), redact(config.raw, err.Error()))
	}
	return buildable
}

func parseFileWatcher(config pluginConfig) *certprovider.BuildableConfig {
	config.Know(certfiles.Keys()...)
	files, err := certfiles.Parse(config.raw)
	if ids := config.Peek(serverIDs); ids.Present() {
		ids.Fault("", "is for the credentials of a management server; which servers of a Cluster are accepted is up to match_typed_subject_alt_names in the Cluster")
	}
	switch {
	case err != nil:
		config.fail(err)
	case files.Empty():
		config.Fault("", "expected certificate_file with private_key_file, ca_certificate_file or spiffe_trust_bundle_map_file, found none of them")
	default:
		return files.Buildable()
	}
	return nil
}
