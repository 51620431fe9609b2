package bootstrap

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Config is a valid bootstrap. It is immutable: neither it nor anything it points to may be
// modified, and any goroutine may read it.
type Config struct {
	// Source is what errors call the bootstrap: the path of the file,
	// "GRPC_XDS_BOOTSTRAP_CONFIG", or the name that Parse was given.
	Source string
	// Servers are the management servers for resources that belong to no authority, the
	// preferred one first (gRFC A71). There is at least one.
	Servers []*Server
	// Warnings are about keys that are ignored although they look like known ones, and the like. Each is logged once.
	Warnings []string
	// Node is the identity of the client: what the document gives, with user agent and
	// client features added. It is never nil.
	Node *corev3.Node
	// Authorities holds the authorities by name (gRFC A47). The name "" is that of xdstp
	// names without an authority.
	Authorities map[string]*Authority
	// CertificateProviders holds the certificate provider instances by name (gRFC A29).
	CertificateProviders map[string]*CertificateProvider
	// AllowedServices holds the services that any management server may have HTTP filters call, by target
	// (allowed_grpc_services, gRFC A102). Others are for trusted servers: see Service.
	AllowedServices map[string]*Service
	// ClientListenerTemplate names the Listener of a target without an authority. It
	// defaults to "%s", which stands for the endpoint.
	ClientListenerTemplate string
	// ServerListenerTemplate names the Listener of a gRPC server (gRFC A36). It is empty if
	// the document has none. This client does not use it.
	ServerListenerTemplate string
	// Constraints are the client's own dynamic parameter constraints (TP2): those made of
	// keys of Node.Metadata (node_metadata_constraints; TP2, "Migrating From Node
	// Metadata"), and over them those that the document spells out
	// (dynamic_parameter_constraints).
	Constraints dynparam.ByType
	// DNSFallback says when a target may be resolved by DNS instead.
	DNSFallback DNSFallback
	// DNSFallbackGiven reports whether the document has dns_fallback. If it does not,
	// channels that leave the security of their connections to the control plane (gRFC A29)
	// are not resolved by DNS.
	DNSFallbackGiven bool
	// ResourceCache says where the resources in use are kept for a start without a control plane. An
	// empty Directory: nowhere. Those that were not known to be current for MaxAge are not used.
	ResourceCache struct {
		Directory string
		MaxAge    time.Duration
	}

	fingerprint string
	document    []byte
	trusted     []string // the URIs of servers that have FeatureTrustedXDSServer whatever the document says
}

// Authority is the configuration of one authority (gRFC A47).
type Authority struct {
	// Servers are the authority's management servers, the preferred one first. They are
	// Config.Servers if the authority has none of its own.
	Servers []*Server
	// ClientListenerTemplate names the Listener of a target with this authority. It starts
	// with "xdstp://NAME/" and defaults to
	// "xdstp://NAME/envoy.config.listener.v3.Listener/%s".
	ClientListenerTemplate string
	// DynamicParameterConstraintsResource names the resource that holds the constraints for
	// this authority (TP2, "Server-Specified Constraints"). It is empty if there is none,
	// and may belong to another authority.
	DynamicParameterConstraintsResource string
}

// DNSFallback says when a target may be resolved by DNS although there is a control plane.
type DNSFallback string

// The values of dns_fallback.
const (
	// DNSFallbackNever never falls back.
	DNSFallbackNever DNSFallback = "never"
	// DNSFallbackNotFound, the default, falls back when the control plane says that the
	// target does not exist.
	DNSFallbackNotFound DNSFallback = "not_found"
	// DNSFallbackTimeout also falls back when the control plane does not answer for the target in
	// time, as a control plane that hangs or starts slowly does not either. It is for control planes
	// that never say that a Listener does not exist.
	DNSFallbackTimeout DNSFallback = "timeout"
	// DNSFallbackUnavailable also falls back when the control plane cannot be reached.
	DNSFallbackUnavailable DNSFallback = "unavailable"
)

// ListenerName returns the name of the Listener resource for a target, made with the
// template of its authority, or with the default template if the authority is empty (gRFC
// A47). endpoint is the target's path without the leading slash. An authority that the
// bootstrap does not have is an error, whether the target names it or the default template.
func (c *Config) ListenerName(authority, endpoint string) (string, error) {
	of := &Authority{ClientListenerTemplate: c.ClientListenerTemplate}
	var err error
	if authority != "" {
		of, err = c.authority(authority, "")
	}
	switch {
	case endpoint == "" && (err != nil || strings.Contains(of.ClientListenerTemplate, "%s")):
		return "", fmt.Errorf("the target names no service; did you mean %s, or xds://AUTHORITY/SERVICE?", faults.Quote("xds:///"+cmp.Or(authority, "SERVICE")))
	case err != nil:
		return "", err
	}
	name := expand(of.ClientListenerTemplate, endpoint)
	if in, isNew := xdsname.Authority(name); isNew {
		if _, err := c.authority(in, ", named by client_default_listener_resource_name_template,"); err != nil {
			return "", err
		}
	}
	return name, nil
}

// expand puts the endpoint into a template (gRFC A47). In new-style names it is
// percent-encoded as a URI path.
func expand(template, endpoint string) string {
	if strings.HasPrefix(template, xdsname.Prefix) {
		endpoint = xdsname.EncodeID(endpoint)
	}
	return strings.ReplaceAll(template, "%s", endpoint)
}

// Authority returns the entry of authorities for an authority, which may be the empty one of "xdstp:///" names. An
// error lists the authorities that there are. Names that do not start with "xdstp:" have no entry: their servers are
// Config.Servers.
func (c *Config) Authority(name string) (*Authority, error) {
	origin := ""
	if name == "" {
		origin = `, of names that start with "xdstp:///",`
	}
	return c.authority(name, origin)
}

// Fingerprint is equal for bootstraps of equal meaning, whatever their source, key order,
// white space and unknown keys. Channels whose bootstraps have the same fingerprint can
// share one client.
func (c *Config) Fingerprint() string { return c.fingerprint }

// maxListed bounds how many names an error or a warning lists.
const maxListed = 10

// authority returns an authority. origin, set off by commas, is for the error: where the
// name comes from if not from the caller.
func (c *Config) authority(name, origin string) (*Authority, error) {
	if a, ok := c.Authorities[name]; ok {
		return a, nil
	}
	known := "add it to authorities, which is empty"
	if len(c.Authorities) > 0 {
		known = "authorities has " + quoted(slices.Sorted(maps.Keys(c.Authorities)))
	}
	return nil, fmt.Errorf("xDS bootstrap %s: authority %s%s is unknown; %s", c.Source, faults.Quote(name), origin, known)
}

// quoted lists names for an error or a warning.
func quoted(names []string) string {
	var list []string
	for _, name := range names {
		list = append(list, faults.Quote(name))
	}
	return faults.Few(list, maxListed, ", ")
}

// WithNode returns the configuration for a client that gives its servers another identity. The
// node is shared and must not be changed; unlike Config.Node of a bootstrap file it is sent as it
// is, with whatever user agent and client features it has.
func (c *Config) WithNode(node *corev3.Node) *Config {
	other := *c
	other.Node = node
	other.fingerprint = fingerprintOf(&other)
	return &other
}
