package bootstrap

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/dynxds/dynxds/internal/jsonpath"
	"github.com/dynxds/dynxds/internal/xdsname"
)

// InMemory is what a bootstrap that Parse was given without a name is called.
const InMemory = "in-memory bootstrap"

// Parse reads a bootstrap. source is what errors call it, InMemory if it is
// empty. data is not kept. The error is a *Faults with everything that is wrong.
func Parse(source string, data []byte) (*Config, error) {
	if source == "" {
		source = InMemory
	}
	to := new(jsonpath.Collector)
	document, err := read(data, to)
	if err != nil {
		to.Add("", err.Error())
		return nil, errorOf(source, to)
	}
	c := &Config{Source: source}
	c.parse(document)
	if err := errorOf(source, to); err != nil {
		return nil, err
	}
	c.fingerprint = fingerprintOf(c)
	return c, nil
}

// read returns the document, or why it cannot be walked.
func read(data []byte, to *jsonpath.Collector) (jsonpath.Value, error) {
	if len(data) > MaxSize {
		return jsonpath.Value{}, fmt.Errorf("expected at most %d bytes, found %d", MaxSize, len(data))
	}
	return jsonpath.Document(data, to)
}

func (c *Config) parse(document jsonpath.Value) {
	top, ok := document.Object("xds_servers", "node", "authorities", "certificate_providers",
		"client_default_listener_resource_name_template", "server_listener_resource_name_template",
		"dynamic_parameter_constraints", "node_metadata_constraints", "dns_fallback")
	if !ok {
		return
	}
	c.Servers = parseServers(top.Get("xds_servers").NonEmpty("a list with at least one management server"))
	c.Node = parseNode(top.Get("node"))
	c.Authorities = parseAuthorities(top.Get("authorities"), c.Servers)
	c.CertificateProviders = parseProviders(top.Get("certificate_providers"))
	c.ClientListenerTemplate = top.Get("client_default_listener_resource_name_template").Text()
	if c.ClientListenerTemplate == "" {
		c.ClientListenerTemplate = "%s"
	}
	c.ServerListenerTemplate = top.Get("server_listener_resource_name_template").Text()
	c.ClientConstraints = parseClientConstraints(top.Get("dynamic_parameter_constraints"))
	c.NodeMetadataConstraints = parseMetadataConstraints(top.Get("node_metadata_constraints"), c.Node.GetMetadata())
	c.DNSFallback = parseDNSFallback(top.Get("dns_fallback"))
	c.DNSFallbackGiven = !top.Get("dns_fallback").Absent()
}

// parseAuthorities reads the authorities. fallback are the servers of those
// that have none of their own.
func parseAuthorities(v jsonpath.Value, fallback []*Server) map[string]*Authority {
	if v.Absent() {
		return nil
	}
	authorities := make(map[string]*Authority)
	resources := make(map[string]jsonpath.Value)
	for name, entry := range v.Entries() {
		o, ok := entry.Object("client_listener_resource_name_template", "xds_servers", "dynamic_parameter_constraints_resource")
		if !ok {
			continue
		}
		a := &Authority{Name: name, Servers: fallback}
		if servers := o.Get("xds_servers"); !servers.Absent() {
			if own := parseServers(servers.Elements("a list of management servers")); len(own) > 0 {
				a.Servers = own
			}
		}
		a.ClientListenerTemplate = parseAuthorityTemplate(o.Get("client_listener_resource_name_template"), name)
		resources[name] = o.Get("dynamic_parameter_constraints_resource")
		authorities[name] = a
	}
	// Such a resource may belong to an authority further down in the document.
	for _, name := range sortedKeys(resources) {
		authorities[name].DynamicParameterConstraintsResource = parseConstraintsResource(resources[name], authorities[name], authorities)
	}
	return authorities
}

func parseAuthorityTemplate(v jsonpath.Value, authority string) string {
	prefix := xdsname.AuthorityPrefix(authority)
	template := v.Text()
	if template == "" {
		return prefix + "envoy.config.listener.v3.Listener/%s"
	}
	if !xdsname.HasAuthority(template, authority) {
		v.Fail("expected a template that starts with %s, found %s", jsonpath.Quote(prefix), jsonpath.Quote(template))
	}
	return template
}

// parseConstraintsResource reads the name of the resource that is asked for before anything
// else of an authority. A failure to get it means that there are no constraints, so a name
// that cannot work has to be caught here; and so have servers that would not take the
// constraints, as what these are to keep from a client would reach it.
func parseConstraintsResource(v jsonpath.Value, of *Authority, authorities map[string]*Authority) string {
	name := v.Text()
	if name == "" {
		return ""
	}
	if err := xdsname.CheckConstraintsMap(name); err != nil {
		v.Fail(`expected the name of a resource such as "xdstp://AUTHORITY/%s/ID", %v`, xdsname.ConstraintsMap, err)
	}
	if in, isNew := xdsname.Authority(name); isNew {
		if _, ok := authorities[in]; !ok {
			v.Fail("expected a resource of an authority listed in authorities, found authority %s", jsonpath.Quote(in))
		}
	}
	takes := func(s *Server) bool { return s == nil || s.HasFeature(FeatureDynamicParameterConstraints) }
	if !slices.ContainsFunc(of.Servers, takes) {
		v.Fail("expected %q in server_features of a management server of the authority, found it in none: it would be asked for everything without the constraints",
			FeatureDynamicParameterConstraints)
	}
	return name
}

// unknownPlugin starts the error of certprovider.ParseConfig for a plugin that
// is not registered. There is no other way to ask.
const unknownPlugin = "no certificate provider builder found"

func parseProviders(v jsonpath.Value) map[string]CertificateProvider {
	if v.Absent() {
		return nil
	}
	providers := make(map[string]CertificateProvider)
	for name, entry := range v.Entries() {
		o, ok := entry.Object("plugin_name", "config")
		if !ok {
			continue
		}
		plugin, hasName := o.Get("plugin_name").NonEmptyText("the name of a certificate provider plugin")
		config, hasConfig := pluginConfig(o.Get("config"))
		if !hasName || !hasConfig {
			continue
		}
		if _, err := certprovider.ParseConfig(plugin, config.Raw); err != nil {
			reportPlugin(o.Get("plugin_name"), config, plugin, err)
			continue
		}
		providers[name] = CertificateProvider{PluginName: plugin, Config: config.Raw}
	}
	return providers
}

func reportPlugin(name, config jsonpath.Value, plugin string, err error) {
	if strings.HasPrefix(err.Error(), unknownPlugin) {
		name.Fail("expected a certificate provider plugin that this program has, found %s; import the package that registers it, if only for its side effects (import _ \"…\")", jsonpath.Quote(plugin))
		return
	}
	config.Fail("expected a configuration that plugin %s accepts; it says: %s", jsonpath.Quote(plugin), redact(config, err.Error()))
}

func parseDNSFallback(v jsonpath.Value) DNSFallback {
	if v.Absent() {
		return DNSFallbackNotFound
	}
	allowed := []DNSFallback{DNSFallbackNever, DNSFallbackNotFound, DNSFallbackUnavailable}
	what := fmt.Sprintf("one of %q, %q and %q", allowed[0], allowed[1], allowed[2])
	s, ok := v.RequiredText(what)
	if ok && !slices.Contains(allowed, DNSFallback(s)) {
		v.Fail("expected %s, found %s", what, jsonpath.Quote(s))
	}
	return DNSFallback(s)
}
