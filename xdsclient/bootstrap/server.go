package bootstrap

import (
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/jsondoc"
)

var logger = boundlog.Component("dynxds")

// Feature is an entry of server_features: what the server can do, or how the client treats
// it.
type Feature string

// The known features. Others are ignored (gRFC A30).
const (
	// FeatureDelta: the server speaks the delta variant of ADS.
	FeatureDelta Feature = "delta"
	// FeatureDynamicParameterConstraints: the server understands resource locators with
	// dynamic parameter constraints (TP2).
	FeatureDynamicParameterConstraints Feature = "dynamic_parameter_constraints"
	// FeatureFailOnDataErrors: a data error withdraws the cached resource (gRFC A88).
	FeatureFailOnDataErrors Feature = "fail_on_data_errors"
	// FeatureResourceTimerIsTransientError: a resource that does not arrive in time is a
	// transient error, not a missing resource (gRFC A88).
	FeatureResourceTimerIsTransientError Feature = "resource_timer_is_transient_error"
	// FeatureTrustedXDSServer: the server may set fields that affect security, such as the
	// authority header (gRFC A81).
	FeatureTrustedXDSServer Feature = "trusted_xds_server"
	// featureIgnoreResourceDeletion: a deleted resource stays in use (gRFC A53; deprecated
	// by A88).
	featureIgnoreResourceDeletion Feature = "ignore_resource_deletion"
)

var knownFeatures = []Feature{
	FeatureDelta,
	FeatureDynamicParameterConstraints,
	FeatureFailOnDataErrors,
	FeatureResourceTimerIsTransientError,
	FeatureTrustedXDSServer,
	featureIgnoreResourceDeletion,
}

// Server is one management server. It is immutable.
type Server struct {
	Service
	// Features holds the known features, each once, in order.
	Features []Feature
}

// HasFeature reports whether the server has the feature.
func (s *Server) HasFeature(f Feature) bool { return slices.Contains(s.Features, f) }

// parseServers reads a list of servers. needed: one whose channel credentials are all unknown is an error, as A27
// requires. In an authority it is unusable, which is no problem of other authorities.
func (c *Config) parseServers(elements []jsondoc.Value, needed bool) (servers []*Server) {
	for _, element := range elements {
		servers = append(servers, c.parseServer(element, needed))
	}
	return servers
}

func (c *Config) parseServer(v jsondoc.Value, needed bool) *Server {
	o := v.Object("server_uri", "channel_creds", "call_creds", "server_features")
	s := &Server{Service: Service{what: "management server", URI: parseServerURI(o.Field("server_uri"))}}
	credentials := s.parseCredentials(o, needed)
	s.Features = parseFeatures(o.Optional("server_features"))
	if slices.Contains(c.trusted, s.URI) && !s.HasFeature(FeatureTrustedXDSServer) {
		s.Features = append(s.Features, FeatureTrustedXDSServer)
		slices.Sort(s.Features)
	}
	s.key = digest(append([]any{s.URI, s.Features}, credentials...))
	return s
}

// parseServerURI reads a gRPC target. It rejects those that could not be dialled, as gRPC's
// error would not name the bootstrap.
func parseServerURI(v jsondoc.Value) string {
	const what = `a gRPC target such as "dns:///host:port"`
	uri, ok := v.NonEmptyText(what)
	if !ok {
		return ""
	}
	scheme, _, hasScheme := strings.Cut(uri, "://") // a resolver of the program's own may use a password
	if strings.Contains(uri, "@") && !strings.HasPrefix(uri, "unix") && (!hasScheme || slices.Contains([]string{"dns", "http", "https"}, strings.ToLower(scheme))) {
		v.Fault("", `expected %s, found one with a user name or a password before "@", which gRPC does not use; remove them`, what)
		return ""
	}
	if strings.ContainsFunc(uri, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		v.Fault("", "expected %s, found white space or control characters in %s", what, faults.Quote(uri))
		return ""
	}
	target, err := url.Parse(uri)
	switch {
	case err != nil: // "127.0.0.1:443" is a gRPC target and no URL
	case (target.Scheme == "http" || target.Scheme == "https") && target.Host != "":
		v.Fault("", "expected %s, found the web address %s", what, faults.Quote(uri))
	case target.Scheme == "xds" || target.Scheme == "dynxds":
		v.Fault("", "expected %s, found %s, which a management server would have to resolve", what, faults.Quote(uri))
	}
	return uri
}

// parseFeatures keeps the known features. Other entries are ignored, whatever their type
// (gRFC A30).
func parseFeatures(v jsondoc.Value) []Feature {
	var features []Feature
	for _, element := range v.Elements("a list") {
		if !element.IsText() {
			continue
		}
		name := Feature(element.Text())
		if slices.Contains(knownFeatures, name) && !slices.Contains(features, name) {
			features = append(features, name)
		}
	}
	slices.Sort(features)
	return features
}
