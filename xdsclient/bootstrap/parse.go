package bootstrap

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/credentials/tls/certprovider"
)

// InMemory is what a bootstrap that Parse was given without a name is called.
const InMemory = "in-memory bootstrap"

// Parse reads a bootstrap. source is what errors call it, InMemory if it is
// empty. data is not kept. The error is a *Faults with everything that is wrong.
func Parse(source string, data []byte) (*Config, error) {
	if source == "" {
		source = InMemory
	}
	to := &collector{}
	if err := checkSyntax(data); err != nil {
		to.add("", err.Error())
		return nil, to.err(source)
	}
	c := &Config{Source: source}
	c.parse(value{raw: bytes.TrimSpace(data), to: to})
	if err := to.err(source); err != nil {
		return nil, err
	}
	c.fingerprint = fingerprintOf(c)
	return c, nil
}

func (c *Config) parse(document value) {
	top, ok := document.object("xds_servers", "node", "authorities", "certificate_providers",
		"client_default_listener_resource_name_template", "server_listener_resource_name_template",
		"dynamic_parameter_constraints", "node_metadata_constraints", "dns_fallback")
	if !ok {
		return
	}
	c.Servers = parseServers(top.get("xds_servers").nonEmpty("a list with at least one management server"))
	c.Node = parseNode(top.get("node"))
	c.Authorities = parseAuthorities(top.get("authorities"), c.Servers)
	c.CertificateProviders = parseProviders(top.get("certificate_providers"))
	c.ClientListenerTemplate = top.get("client_default_listener_resource_name_template").text()
	if c.ClientListenerTemplate == "" {
		c.ClientListenerTemplate = "%s"
	}
	c.ServerListenerTemplate = top.get("server_listener_resource_name_template").text()
	c.ClientConstraints = parseClientConstraints(top.get("dynamic_parameter_constraints"))
	c.NodeMetadataConstraints = parseMetadataConstraints(top.get("node_metadata_constraints"), c.Node.GetMetadata())
	c.DNSFallback = parseDNSFallback(top.get("dns_fallback"))
}

// parseAuthorities reads the authorities. fallback are the servers of those
// that have none of their own.
func parseAuthorities(v value, fallback []*Server) map[string]*Authority {
	if v.absent() {
		return nil
	}
	authorities := make(map[string]*Authority)
	resources := make(map[string]value)
	for name, entry := range v.entries() {
		o, ok := entry.object("client_listener_resource_name_template", "xds_servers", "dynamic_parameter_constraints_resource")
		if !ok {
			continue
		}
		a := &Authority{Name: name, Servers: fallback}
		if servers := o.get("xds_servers"); !servers.absent() {
			if own := parseServers(servers.elements("a list of management servers")); len(own) > 0 {
				a.Servers = own
			}
		}
		a.ClientListenerTemplate = parseAuthorityTemplate(o.get("client_listener_resource_name_template"), name)
		resources[name] = o.get("dynamic_parameter_constraints_resource")
		authorities[name] = a
	}
	// Such a resource may belong to an authority further down in the document.
	for _, name := range sortedKeys(resources) {
		authorities[name].DynamicParameterConstraintsResource = parseConstraintsResource(resources[name], authorities)
	}
	return authorities
}

func parseAuthorityTemplate(v value, authority string) string {
	prefix := authorityPrefix(authority)
	template := v.text()
	if template == "" {
		return prefix + "envoy.config.listener.v3.Listener/%s"
	}
	if !strings.HasPrefix(template, prefix) {
		v.fail("expected a template that starts with %s, found %s", quote(prefix), quote(template))
	}
	return template
}

// parseConstraintsResource reads the name of a resource that is asked for
// before anything else of its authority. A failure to get it only means that
// there are no constraints, so a name that cannot work has to be caught here.
func parseConstraintsResource(v value, authorities map[string]*Authority) string {
	name := v.text()
	in, isNew := authorityOf(name)
	if !isNew {
		return name
	}
	if _, ok := authorities[in]; !ok {
		v.fail("expected a resource of an authority listed in authorities, found authority %s", quote(in))
	}
	return name
}

// unknownPlugin starts the error of certprovider.ParseConfig for a plugin that
// is not registered. There is no other way to ask.
const unknownPlugin = "no certificate provider builder found"

func parseProviders(v value) map[string]CertificateProvider {
	if v.absent() {
		return nil
	}
	providers := make(map[string]CertificateProvider)
	for name, entry := range v.entries() {
		o, ok := entry.object("plugin_name", "config")
		if !ok {
			continue
		}
		plugin, hasName := o.get("plugin_name").nonEmptyText("the name of a certificate provider plugin")
		config, hasConfig := o.get("config").pluginConfig()
		if !hasName || !hasConfig {
			continue
		}
		if _, err := certprovider.ParseConfig(plugin, config.raw); err != nil {
			reportPlugin(o.get("plugin_name"), config, plugin, err)
			continue
		}
		providers[name] = CertificateProvider{PluginName: plugin, Config: config.raw}
	}
	return providers
}

func reportPlugin(name, config value, plugin string, err error) {
	if strings.HasPrefix(err.Error(), unknownPlugin) {
		name.fail("expected a certificate provider plugin that this program has, found %s; import the package that registers it, if only for its side effects (import _ \"…\")", quote(plugin))
		return
	}
	config.fail("expected a configuration that plugin %s accepts; it says: %s", quote(plugin), config.redact(err.Error()))
}

func parseDNSFallback(v value) DNSFallback {
	if v.absent() {
		return DNSFallbackNotFound
	}
	allowed := []DNSFallback{DNSFallbackNever, DNSFallbackNotFound, DNSFallbackUnavailable}
	what := fmt.Sprintf("one of %q, %q and %q", allowed[0], allowed[1], allowed[2])
	s, ok := v.requiredText(what)
	if ok && !slices.Contains(allowed, DNSFallback(s)) {
		v.fail("expected %s, found %s", what, quote(s))
	}
	return DNSFallback(s)
}
