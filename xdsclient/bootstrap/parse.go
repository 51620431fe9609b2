package bootstrap

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/jsondoc"
	"github.com/dynxds/dynxds/internal/xdsname"
)

// inMemory is the name of a bootstrap that Parse was given without one.
const inMemory = "in-memory bootstrap"

// Parse reads a bootstrap. source is what errors call it; the default is "in-memory
// bootstrap". The error is a *Faults with everything that is wrong.
func Parse(source string, data []byte) (*Config, error) { return parse(source, data, nil) }

// parse is Parse with the URIs of servers that are trusted whatever the document says.
func parse(source string, data []byte, trusted []string) (*Config, error) {
	source = cmp.Or(source, inMemory)
	c, found := &Config{Source: source, trusted: trusted}, &Faults{Source: "xDS bootstrap " + source}
	if len(data) > maxSize {
		found.Addf(nil, "expected at most %d bytes, found %d", maxSize, len(data))
	} else if top, err := jsondoc.Parse(data, found); err != nil {
		found.Addf(nil, "%v", err)
	} else {
		c.parse(top.Object("xds_servers", "node", "authorities", "certificate_providers", "allowed_grpc_services",
			"client_default_listener_resource_name_template", "server_listener_resource_name_template",
			"dynamic_parameter_constraints", "node_metadata_constraints", "dns_fallback", "resource_cache"))
		c.Warnings = top.Ignored()
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	c.Warnings = append(c.Warnings, c.untrusted()...)
	warnOnce(found.Source, c.Warnings)
	c.fingerprint, c.document = fingerprintOf(c), bytes.Clone(data)
	return c, nil
}

// untrusted returns a warning for each entry of c.trusted that is the URI of no server: whoever wrote the entry takes a
// server for trusted that is not.
func (c *Config) untrusted() []string {
	servers := slices.Clone(c.Servers)
	for _, name := range slices.Sorted(maps.Keys(c.Authorities)) {
		servers = append(servers, c.Authorities[name].Servers...)
	}
	var uris, texts []string
	for _, s := range servers {
		if !slices.Contains(uris, s.URI) {
			uris = append(uris, s.URI)
		}
	}
	for _, uri := range c.trusted {
		if !slices.Contains(uris, uri) {
			texts = append(texts, fmt.Sprintf("%s names %s, which is no server_uri of the bootstrap, so no server is trusted by that entry; the bootstrap has %s",
				envTrusted, faults.Quote(uri), quoted(uris)))
		}
	}
	return texts
}

// warned has the warnings that were logged: a bootstrap is read for each channel.
var warned = struct {
	mu    sync.Mutex
	texts map[string]bool
}{texts: make(map[string]bool)}

// maxWarned bounds warned. Warnings are repeated when it has been exceeded.
const maxWarned = 1000

// warnOnce logs each text once.
func warnOnce(source string, texts []string) {
	warned.mu.Lock()
	defer warned.mu.Unlock()
	for _, text := range texts {
		if warned.texts[source+": "+text] {
			continue
		}
		if len(warned.texts) >= maxWarned {
			clear(warned.texts)
		}
		warned.texts[source+": "+text] = true
		logger.Warningf("%s: %s", source, text)
	}
}

func (c *Config) parse(top jsondoc.Object) {
	c.Servers = c.parseServers(top.Field("xds_servers").NonEmpty("a list with at least one management server"), true)
	c.Node = parseNode(top.Optional("node"))
	c.Authorities = c.parseAuthorities(top.Optional("authorities"))
	c.CertificateProviders = parseProviders(top.Optional("certificate_providers"))
	c.AllowedServices = parseServices(top.Optional("allowed_grpc_services"))
	c.ClientListenerTemplate = cmp.Or(parseTemplate(top.Field("client_default_listener_resource_name_template")), "%s")
	c.ServerListenerTemplate = top.Field("server_listener_resource_name_template").Text()
	c.Constraints = parseConstraints(top.Optional("dynamic_parameter_constraints"), top.Optional("node_metadata_constraints"), c.Node.GetMetadata())
	c.DNSFallback = parseDNSFallback(top.Optional("dns_fallback"))
	c.DNSFallbackGiven = top.Optional("dns_fallback").Present()
	c.parseResourceCache(top.Optional("resource_cache"))
}

// parseAuthorities reads the authorities. Those without servers of their own have c.Servers.
func (c *Config) parseAuthorities(v jsondoc.Value) map[string]*Authority {
	authorities := make(map[string]*Authority)
	resources := make(map[string]jsondoc.Value)
	for name, entry := range v.Entries() {
		o := entry.Object("client_listener_resource_name_template", "xds_servers", "dynamic_parameter_constraints_resource")
		a := &Authority{Servers: c.Servers}
		if list := c.parseServers(o.Optional("xds_servers").Elements("a list of management servers"), false); len(list) > 0 {
			a.Servers = list
		}
		a.ClientListenerTemplate = parseAuthorityTemplate(o.Field("client_listener_resource_name_template"), name)
		resources[name] = o.Field("dynamic_parameter_constraints_resource")
		authorities[name] = a
	}
	// The resource may belong to an authority further down in the document.
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		authorities[name].DynamicParameterConstraintsResource = parseConstraintsResource(resources[name], authorities[name], authorities)
	}
	return authorities
}

// parseTemplate reads a template of names of Listeners. An endpoint may have slashes, and so begin with the type.
func parseTemplate(v jsondoc.Value) string {
	template := v.Text()
	if _, err := xdsname.Parse(expand(template, "type/id")); err != nil && template != "" {
		v.Fault("", "expected a template of names, found %s: %v", faults.Quote(template), err)
	}
	return template
}

func parseAuthorityTemplate(v jsondoc.Value, authority string) string {
	prefix := xdsname.AuthorityPrefix(authority)
	template := parseTemplate(v)
	if template == "" {
		return prefix + "envoy.config.listener.v3.Listener/%s"
	}
	if !xdsname.HasAuthority(template, authority) {
		v.Fault("", "expected a template that starts with %s, found %s", faults.Quote(prefix), faults.Quote(template))
	}
	return template
}

// parseConstraintsResource reads the name of the resource with the constraints of an
// authority. A client that cannot get the resource goes on without constraints, and so does
// one whose servers do not know constraints: it would receive what the constraints exclude.
// So a name that cannot work, and servers without the feature, are errors.
func parseConstraintsResource(v jsondoc.Value, of *Authority, authorities map[string]*Authority) string {
	name := v.Text()
	if name == "" {
		return ""
	}
	if err := xdsname.CheckConstraintsMap(name); err != nil {
		v.Fault("", `expected the name of a resource such as "xdstp://AUTHORITY/%s/ID", %v`, xdsname.ConstraintsMap, err)
	}
	if in, isNew := xdsname.Authority(name); isNew {
		if _, ok := authorities[in]; !ok {
			v.Fault("", "expected a resource of an authority listed in authorities, found authority %s", faults.Quote(in))
		}
	}
	takes := func(s *Server) bool { return s.URI == "" || s.HasFeature(FeatureDynamicParameterConstraints) } // "": it could not be read
	if !slices.ContainsFunc(of.Servers, takes) {
		v.Fault("", "expected %q in server_features of a management server of the authority, found it in none: it would be asked for everything without the constraints",
			FeatureDynamicParameterConstraints)
	}
	return name
}

func parseDNSFallback(v jsondoc.Value) DNSFallback {
	if !v.Present() {
		return DNSFallbackNotFound
	}
	allowed := []DNSFallback{DNSFallbackNever, DNSFallbackNotFound, DNSFallbackTimeout, DNSFallbackUnavailable}
	what := fmt.Sprintf("one of %q, %q, %q and %q", allowed[0], allowed[1], allowed[2], allowed[3])
	s, ok := v.RequiredText(what)
	if ok && !slices.Contains(allowed, DNSFallback(s)) {
		v.Fault("", "expected %s, found %s", what, faults.Quote(s))
	}
	return DNSFallback(s)
}

// defaultMaxAge is the default of resource_cache.max_age.
const defaultMaxAge = 24 * time.Hour

func (c *Config) parseResourceCache(v jsondoc.Value) {
	o := v.Object("directory", "max_age")
	if !o.IsObject() {
		return
	}
	c.ResourceCache.Directory, _ = o.Field("directory").NonEmptyText("the path of a directory")
	c.ResourceCache.MaxAge = certfiles.ParseDuration(o.Field("max_age"), defaultMaxAge)
}
