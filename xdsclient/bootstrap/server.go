package bootstrap

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode"

	"google.golang.org/grpc/credentials"

	"github.com/dynxds/dynxds/internal/document"
	"github.com/dynxds/dynxds/internal/faults"
)

// Feature is an entry of server_features: something the client may rely on, or
// has to do, with this server.
type Feature string

// The features that have a meaning here. Others are ignored (gRFC A30).
const (
	// FeatureDelta: the server speaks the delta variant of ADS.
	FeatureDelta Feature = "delta"
	// FeatureDynamicParameterConstraints: the server understands resource
	// locators with dynamic parameter constraints (TP2).
	FeatureDynamicParameterConstraints Feature = "dynamic_parameter_constraints"
	// FeatureFailOnDataErrors: a data error withdraws the cached resource
	// (gRFC A88).
	FeatureFailOnDataErrors Feature = "fail_on_data_errors"
	// FeatureResourceTimerIsTransientError: a resource that does not come in
	// time is a transient error, not a missing resource (gRFC A88).
	FeatureResourceTimerIsTransientError Feature = "resource_timer_is_transient_error"
	// FeatureTrustedXDSServer: the server may set what bears on security, such
	// as the authority header (gRFC A81).
	FeatureTrustedXDSServer Feature = "trusted_xds_server"
	// FeatureIgnoreResourceDeletion: a deleted resource stays in use
	// (gRFC A53; deprecated by A88).
	FeatureIgnoreResourceDeletion Feature = "ignore_resource_deletion"
)

var knownFeatures = []Feature{
	FeatureDelta,
	FeatureDynamicParameterConstraints,
	FeatureFailOnDataErrors,
	FeatureResourceTimerIsTransientError,
	FeatureTrustedXDSServer,
	FeatureIgnoreResourceDeletion,
}

// Server is one management server. It is immutable.
type Server struct {
	// URI is the server as a gRPC target, for example "dns:///host:port".
	URI string
	// CredentialsType is the type of the channel credentials in use: the first
	// of the document's list that this program supports.
	CredentialsType string
	// Features holds the known features, each once, in order.
	Features []Feature

	build BuildCredentials
	key   string
}

// HasFeature reports whether the server has the feature.
func (s *Server) HasFeature(f Feature) bool { return slices.Contains(s.Features, f) }

// String returns the URI, for logs and errors.
func (s *Server) String() string { return s.URI }

// Key is equal for servers with the same URI, credentials and known features,
// between which there is no need for more than one connection (gRFC A47,
// "Server Channel Map"). It gives nothing of the credentials away.
func (s *Server) Key() string { return s.key }

// Credentials makes the credentials to dial the server with, to be given to
// grpc.WithCredentialsBundle. Each call makes new ones, which belong to the
// caller: it calls release, which is never nil beside a nil error and may be
// called again, once the connection is closed.
func (s *Server) Credentials() (bundle credentials.Bundle, release func(), err error) {
	bundle, release, err = s.build()
	if err == nil && bundle == nil {
		err = errors.New("their builder made none")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s credentials for management server %s: %w", s.CredentialsType, s.URI, err)
	}
	if release == nil {
		release = func() {}
	}
	return bundle, sync.OnceFunc(release), nil
}

func parseServers(elements []document.Value) []*Server {
	var servers []*Server
	for _, element := range elements {
		servers = append(servers, parseServer(element))
	}
	return servers
}

func parseServer(v document.Value) *Server {
	o := v.Object("server_uri", "channel_creds", "server_features")
	if !o.IsObject() {
		return nil
	}
	s := &Server{URI: parseServerURI(o.Field("server_uri"))}
	creds := parseChannelCreds(o.Field("channel_creds"))
	if creds.builder != nil {
		s.CredentialsType = creds.builder.Type()
		s.build = creds.build
	}
	s.Features = parseFeatures(o.Field("server_features"))
	s.key = digest(struct {
		URI, Type string
		Config    any
		Features  []Feature
	}{s.URI, s.CredentialsType, canonical(creds.config.raw), s.Features})
	return s
}

// parseServerURI reads a gRPC target and rejects those that dial would only
// fail on later, with a message that does not name the bootstrap.
func parseServerURI(v document.Value) string {
	const what = `a gRPC target such as "dns:///host:port"`
	uri, ok := v.NonEmptyText(what)
	if !ok {
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
		v.Fault("", "expected %s, found %s, which takes a management server to resolve", what, faults.Quote(uri))
	}
	return uri
}

// parseFeatures keeps the known features. Entries that are not known are
// ignored, whatever their type (gRFC A30).
func parseFeatures(v document.Value) []Feature {
	if v.Absent() {
		return nil
	}
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
