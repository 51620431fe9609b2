package bootstrap

import (
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/jsondoc"
)

// Service is a gRPC service that the client may call: a management server, or what HTTP filters ask
// (gRFC A102). It is immutable.
type Service struct {
	// URI is the service as a gRPC target, for example "dns:///host:port".
	URI string
	// CredentialsType is the type of the channel credentials in use: the first of the
	// document's list that this program supports. It is empty if it supports none, which
	// is an error of the bootstrap but for the servers of an authority.
	CredentialsType string

	what     string // what errors call it
	channel  BuildCredentials
	call     []creds[buildCallCredentials]
	unusable error // why DialOptions fails, if that is known already
	key      string
	// warn warns, once, that the service is reached in plaintext where the document prefers other
	// credentials, or that others can pose as it; nil if neither is so.
	warn func()
}

// String returns the URI, for logs and errors.
func (s *Service) String() string { return s.URI }

// Key is equal for services with the same URI, credentials and, for management servers, known features, between
// which there is no need for more than one connection (gRFC A47, "Server Channel Map").
// It does not reveal the credentials.
func (s *Service) Key() string { return s.key }

// MarshalText returns the key, which is the service in fingerprints.
func (s *Service) MarshalText() ([]byte, error) { return []byte(s.key), nil }

// DialOptions returns the options to dial the service with: its channel credentials and its
// call credentials. Each call makes new credentials, which belong to the caller: it calls
// release, which is never nil beside a nil error and may be called again, once the
// connection is closed. Call credentials that want a secure connection are an error beside
// channel credentials of type "insecure" (gRFC A97), as are unknown channel credentials.
func (s *Service) DialOptions() (options []grpc.DialOption, release func(), err error) {
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

func (s *Service) dialOptions(releases *[]func()) ([]grpc.DialOption, error) {
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
		return nil, fmt.Errorf("%s credentials for %s %s: their bundle has no transport credentials", s.CredentialsType, s.what, s.URI)
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
func build[C comparable](s *Service, name string, from func() (C, func(), error), releases *[]func()) (C, error) {
	var none C
	made, release, err := from()
	if release != nil {
		*releases = append(*releases, release)
	}
	if err == nil && made == none {
		err = errors.New("their builder made none")
	}
	if err != nil {
		return none, fmt.Errorf("%s credentials for %s %s: %w", name, s.what, s.URI, err)
	}
	return made, nil
}

// parseCredentials reads channel_creds and call_creds, and returns what identifies them. If no type of
// channel_creds is supported, that is an error of the document, or the service is unusable.
func (s *Service) parseCredentials(o jsondoc.Object, needed bool) []any {
	channelCreds := o.Field("channel_creds")
	channel, unsupported := parseChannelCreds(channelCreds)
	s.CredentialsType, s.channel = channel.name, channel.build
	if warning := channel.warning; warning != "" {
		s.warn = sync.OnceFunc(func() { logger.Warningf("%s %s %s", s.what, s.URI, warning) })
	}
	switch {
	case unsupported != nil && needed:
		channelCreds.Fault("", "%v", unsupported)
	case unsupported != nil:
		s.unusable = fmt.Errorf("%s: %w", channelCreds.Path(), unsupported)
	}
	s.call = parseCallCreds(o.Optional("call_creds"))
	identity := []any{channel.key(), fmt.Sprint(s.unusable)}
	for i := range s.call {
		identity = append(identity, s.call[i].key())
	}
	return identity
}

// parseServices reads allowed_grpc_services (gRFC A102).
func parseServices(v jsondoc.Value) map[string]*Service {
	services := make(map[string]*Service)
	for target, entry := range v.Entries() {
		o := entry.Object("channel_creds", "call_creds")
		s := &Service{what: "service", URI: target}
		s.key = digest(append([]any{target}, s.parseCredentials(o, true)...))
		services[target] = s
	}
	return services
}
