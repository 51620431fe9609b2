package bootstrap

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode"

	"google.golang.org/grpc"

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
	// FeatureIgnoreResourceDeletion: a deleted resource stays in use (gRFC A53; deprecated
	// by A88).
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
	// CredentialsType is the type of the channel credentials in use: the first of the
	// document's list that this program supports. It is empty if it supports none, which
	// is a fault of the bootstrap but for the servers of an authority.
	CredentialsType string
	// Features holds the known features, each once, in order.
	Features []Feature

	channel  BuildCredentials
	call     []creds[BuildCallCredentials]
	unusable error // why DialOptions fails, if that is known already
	key      string
	// warn warns, once, that the server is reached in plaintext where the document prefers other
	// credentials, or that others can pose as it; nil if neither is so.
	warn func()
}

// HasFeature reports whether the server has the feature.
func (s *Server) HasFeature(f Feature) bool { return slices.Contains(s.Features, f) }

// String returns the URI, for logs and errors.
func (s *Server) String() string { return s.URI }

// Key is equal for servers with the same URI, credentials and known features, between
// which there is no need for more than one connection (gRFC A47, "Server Channel Map").
// It does not reveal the credentials.
func (s *Server) Key() string { return s.key }

// DialOptions returns the options to dial the server with: its channel credentials and its
// call credentials. Each call makes new credentials, which belong to the caller: it calls
// release, which is never nil beside a nil error and may be called again, once the
// connection is closed. Call credentials that want a secure connection are an error beside
// channel credentials of type "insecure" (gRFC A97), as are unknown channel credentials.
func (s *Server) DialOptions() (options []grpc.DialOption, release func(), err error) {
	var releases []func()
	options, err = s.dialOptions(&releases)
	release = sync.OnceFunc(func() {
		for _, f := range releases {
			f()
		}
	})
	if err != nil {
		release()
		return nil, nil, err
	}
	return options, release, nil
}

func (s *Server) dialOptions(releases *[]func()) ([]grpc.DialOption, error) {
	if s.unusable != nil {
		return nil, s.unusable
	}
	if s.warn != nil {
		s.warn()
	}
	bundle, err := build(s, s.CredentialsType, s.channel, releases)
	if err != nil {
		return nil, err
	}
	if bundle.TransportCredentials() == nil {
		return nil, fmt.Errorf("%s credentials for management server %s: their bundle has no transport credentials", s.CredentialsType, s.URI)
	}
	options := []grpc.DialOption{grpc.WithCredentialsBundle(bundle)}
	for _, c := range s.call {
		creds, err := build(s, c.name, c.build, releases)
		if err != nil {
			return nil, err
		}
		if creds.RequireTransportSecurity() && bundle.TransportCredentials().Info().SecurityProtocol == "insecure" {
			return nil, fmt.Errorf("call_creds of type %s are sent over secure connections only, and channel_creds have type %s; use one such as tls",
				c.name, s.CredentialsType)
		}
		options = append(options, grpc.WithPerRPCCredentials(creds))
	}
	return options, nil
}

// build makes credentials and notes how to release them.
func build[C comparable](s *Server, name string, from func() (C, func(), error), releases *[]func()) (C, error) {
	var none C
	made, release, err := from()
	if err == nil && made == none {
		err = errors.New("their builder made none")
	}
	if err != nil {
		return none, fmt.Errorf("%s credentials for management server %s: %w", name, s.URI, err)
	}
	if release != nil {
		*releases = append(*releases, release)
	}
	return made, nil
}

// serverList is how a list of servers is read.
type serverList struct {
	// topLevel: a server whose channel credentials are all unknown is a fault, as A27
	// requires. In an authority it is unusable, which is no problem of other authorities.
	topLevel bool
	// trusted are the URIs of servers that have FeatureTrustedXDSServer whatever the
	// document says.
	trusted []string
}

func (l serverList) parse(elements []jsondoc.Value) []*Server {
	var servers []*Server
	for _, element := range elements {
		servers = append(servers, l.parseServer(element))
	}
	return servers
}

func (l serverList) parseServer(v jsondoc.Value) *Server {
	o := v.Object("server_uri", "channel_creds", "call_creds", "server_features")
	if !o.IsObject() {
		return nil
	}
	s := &Server{URI: parseServerURI(o.Field("server_uri"))}
	channelCreds := o.Field("channel_creds")
	channel, unsupported := parseChannelCreds(channelCreds)
	switch {
	case channel.builder != nil:
		s.CredentialsType, s.channel = channel.name, channel.build
		switch {
		case channel.name == insecureType && len(channel.preferred) > 0:
			s.warn = plaintextWarning(s.URI, channelCreds.Path(), channel.preferred)
		case channel.name == (tlsBuilder{}).Type():
			s.warn = impostorWarning(s.URI, channel.config.Value)
		}
	case unsupported != nil && l.topLevel:
		channelCreds.Fault("", "%v", unsupported)
	case unsupported != nil:
		s.unusable = fmt.Errorf("%s: %w", channelCreds.Path(), unsupported)
	}
	s.call = parseCallCreds(o.Field("call_creds"))
	s.Features = parseFeatures(o.Field("server_features"))
	if slices.Contains(l.trusted, s.URI) && !s.HasFeature(FeatureTrustedXDSServer) {
		s.Features = append(s.Features, FeatureTrustedXDSServer)
		slices.Sort(s.Features)
	}
	identity := []any{s.URI, s.Features, channel.key(), fmt.Sprint(s.unusable)}
	for i := range s.call {
		identity = append(identity, s.call[i].key())
	}
	s.key = digest(identity)
	return s
}

func plaintextWarning(uri, path string, preferred []string) func() {
	return sync.OnceFunc(func() {
		logger.Warningf("management server %s is reached in plaintext: %s has %s before insecure, which this program does not support; %s",
			uri, path, strings.Join(preferred, ", "), support(preferred))
	})
}

// parseServerURI reads a gRPC target. It rejects those that could not be dialled, as gRPC's
// error would not name the bootstrap.
func parseServerURI(v jsondoc.Value) string {
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
		v.Fault("", "expected %s, found %s, which a management server would have to resolve", what, faults.Quote(uri))
	}
	return uri
}

// parseFeatures keeps the known features. Other entries are ignored, whatever their type
// (gRFC A30).
func parseFeatures(v jsondoc.Value) []Feature {
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
