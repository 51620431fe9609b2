package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tokenpb "github.com/envoyproxy/go-control-plane/envoy/extensions/grpc_service/call_credentials/access_token/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/grpc_service/channel_credentials/google_default/v3" // for messages in JSON
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/grpc_service/channel_credentials/insecure/v3"
	tlscredspb "github.com/envoyproxy/go-control-plane/envoy/extensions/grpc_service/channel_credentials/tls/v3"
	xdscredspb "github.com/envoyproxy/go-control-plane/envoy/extensions/grpc_service/channel_credentials/xds/v3"
	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/tls/certprovider"
	"google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/jsondoc"
)

// Service returns the service that a management server wants called. A trusted server says with which
// credentials; for others the service has to be one of AllowedServices, whose credentials count (gRFC A102,
// "Security Considerations"). Errors name the fields of pb.
func (c *Config) Service(pb *corev3.GrpcService_GoogleGrpc, trusted bool) (*Service, error) {
	target := pb.GetTargetUri()
	switch {
	case target == "":
		return nil, errors.New("target_uri: must not be empty")
	case !isTarget(target):
		return nil, fmt.Errorf("target_uri: %s is not a gRPC target", faults.Quote(target))
	case trusted:
		return c.trustedService(target, pb)
	}
	s := c.AllowedServices[target]
	if s == nil {
		return nil, fmt.Errorf("target_uri: %s is not in allowed_grpc_services of the bootstrap, and the management server does not have %s (gRFC A102)",
			faults.Quote(target), FeatureTrustedXDSServer)
	}
	return s, nil
}

// isTarget reports whether grpc.NewClient would take the target.
func isTarget(target string) bool {
	if u, err := url.Parse(target); err == nil && resolver.Get(u.Scheme) != nil {
		return true
	}
	_, err := url.Parse(resolver.GetDefaultScheme() + ":///" + target)
	return err == nil
}

const (
	pluginTypes   = "type.googleapis.com/envoy.extensions.grpc_service."
	googlePlugin  = pluginTypes + "channel_credentials.google_default.v3.GoogleDefaultCredentials"
	plaintextType = pluginTypes + "channel_credentials.insecure.v3.InsecureCredentials"
	tlsPlugin     = pluginTypes + "channel_credentials.tls.v3.TlsCredentials"
	xdsPlugin     = pluginTypes + "channel_credentials.xds.v3.XdsCredentials"
	tokenPlugin   = pluginTypes + "call_credentials.access_token.v3.AccessTokenCredentials"
)

// trustedService reads the credentials of a trusted server: the first of channel_credentials_plugin that this program
// supports, and all such of call_credentials_plugin (gRFC A102, "Credential Configuration in GrpcService Proto").
func (c *Config) trustedService(target string, pb *corev3.GrpcService_GoogleGrpc) (*Service, error) {
	s := &Service{what: "service", URI: target}
	// The names of certificate providers mean something in this bootstrap only.
	identity := []any{"trusted", c.fingerprint, target}
	for i, plugin := range pb.GetChannelCredentialsPlugin() {
		name, build, err := c.channelPlugin(plugin)
		if err != nil {
			return nil, fmt.Errorf("channel_credentials_plugin[%d]: %w", i, err)
		}
		if build != nil {
			s.CredentialsType, s.channel = name, build
			identity = append(identity, plugin.GetTypeUrl(), plugin.GetValue())
			break
		}
	}
	if s.channel == nil {
		return nil, errors.New("channel_credentials_plugin: must have credentials of a type that this program supports")
	}
	for i, plugin := range pb.GetCallCredentialsPlugin() {
		if plugin.GetTypeUrl() != tokenPlugin {
			continue
		}
		token := new(tokenpb.AccessTokenCredentials)
		err := plugin.UnmarshalTo(token)
		if err == nil && token.GetToken() == "" {
			err = errors.New("token: must not be empty")
		}
		if err != nil {
			return nil, fmt.Errorf("call_credentials_plugin[%d]: %w", i, err)
		}
		s.call = append(s.call, creds[buildCallCredentials]{name: "access_token", build: func() (credentials.PerRPCCredentials, func(), error) {
			return accessToken(token.GetToken()), nil, nil
		}})
		identity = append(identity, plugin.GetTypeUrl(), plugin.GetValue())
	}
	s.key = digest(identity)
	return s, nil
}

// channelPlugin reads one of channel_credentials_plugin. build is nil if this program does not support its type.
func (c *Config) channelPlugin(plugin *anypb.Any) (name string, build BuildCredentials, err error) {
	switch plugin.GetTypeUrl() {
	case plaintextType:
		name = insecureType
	case googlePlugin:
		name = "google_default"
	case tlsPlugin:
		build, err := c.tlsPlugin(plugin)
		return "tls", build, err
	case xdsPlugin:
		pb := new(xdscredspb.XdsCredentials)
		if err := plugin.UnmarshalTo(pb); err != nil {
			return "", nil, err
		}
		if pb.GetFallbackCredentials().GetTypeUrl() == xdsPlugin {
			return "", nil, errors.New("fallback_credentials: must not be xds credentials again")
		}
		_, fallback, err := c.channelPlugin(pb.GetFallbackCredentials())
		if err == nil && fallback == nil {
			err = errors.New("must be set to credentials of a type that this program supports")
		}
		if err != nil {
			return "", nil, fmt.Errorf("fallback_credentials: %w", err)
		}
		return "xds", func() (credentials.Bundle, func(), error) { return xdsCredentials(fallback) }, nil
	}
	if parse := channelTypes[name]; parse != nil {
		found := new(Faults)
		none, _ := jsondoc.Parse([]byte("{}"), found)
		build, _ = parse(none)
		err = found.Err()
	}
	return name, build, err
}

// xdsCredentials wraps the fallback in credentials that obey the control plane.
func xdsCredentials(fallback BuildCredentials) (credentials.Bundle, func(), error) {
	bundle, release, err := fallback()
	if err != nil {
		return nil, nil, err
	}
	obeying, err := xds.NewClientCredentials(xds.ClientOptions{FallbackCreds: bundle.TransportCredentials()})
	return tlsBundle{obeying, bundle.PerRPCCredentials()}, release, err
}

func (c *Config) tlsPlugin(plugin *anypb.Any) (BuildCredentials, error) {
	pb := new(tlscredspb.TlsCredentials)
	if err := plugin.UnmarshalTo(pb); err != nil {
		return nil, err
	}
	roots, err := c.provider(pb.GetRootCertificateProvider())
	if err != nil {
		return nil, fmt.Errorf("root_certificate_provider: %w", err)
	}
	var identity *CertificateProvider
	if pb.GetIdentityCertificateProvider() != nil {
		if identity, err = c.provider(pb.GetIdentityCertificateProvider()); err != nil {
			return nil, fmt.Errorf("identity_certificate_provider: %w", err)
		}
	}
	return func() (credentials.Bundle, func(), error) {
		var p pluginProvider
		var err error
		if p.roots, err = roots.Build(certprovider.BuildOptions{CertName: pb.GetRootCertificateProvider().GetCertificateName(), WantRoot: true}); err != nil {
			return nil, nil, fmt.Errorf("root_certificate_provider: %w", err)
		}
		if identity != nil {
			p.identity, err = identity.Build(certprovider.BuildOptions{CertName: pb.GetIdentityCertificateProvider().GetCertificateName(), WantIdentity: true})
			if err != nil {
				p.Close()
				return nil, nil, fmt.Errorf("identity_certificate_provider: %w", err)
			}
		}
		instance := "of certificate provider instance " + faults.Quote(pb.GetIdentityCertificateProvider().GetInstanceName())
		return tlsBundle{creds: newReloadingTLS(p, instance)}, p.Close, nil
	}, nil
}

// provider returns the certificate provider that a field names.
func (c *Config) provider(pb *tlspb.CommonTlsContext_CertificateProviderInstance) (*CertificateProvider, error) {
	name := pb.GetInstanceName()
	switch p := c.CertificateProviders[name]; {
	case pb == nil:
		return nil, errors.New("must be set")
	case p == nil:
		return nil, fmt.Errorf("instance_name: %s is not in certificate_providers of the bootstrap", faults.Quote(name))
	case p.Buildable == nil:
		return nil, fmt.Errorf("instance_name: this program has no plugin %s, of certificate provider instance %s", faults.Quote(p.PluginName), faults.Quote(name))
	default:
		return p, nil
	}
}

// pluginProvider has the roots of one provider and the certificate of another, which may be nil.
type pluginProvider struct{ roots, identity certprovider.Provider }

func (p pluginProvider) KeyMaterial(ctx context.Context) (*certprovider.KeyMaterial, error) {
	roots, err := p.roots.KeyMaterial(ctx)
	if err != nil {
		return nil, err
	}
	if roots.Roots == nil { // The server's name decides, so that a bundle map does not do.
		return nil, errors.New("the provider of root_certificate_provider has no root certificates")
	}
	material := &certprovider.KeyMaterial{Roots: roots.Roots}
	if p.identity != nil {
		identity, err := p.identity.KeyMaterial(ctx)
		if err != nil {
			return nil, err
		}
		material.Certs = identity.Certs
	}
	return material, nil
}

func (p pluginProvider) Close() {
	p.roots.Close()
	if p.identity != nil {
		p.identity.Close()
	}
}

// accessToken is sent over connections with privacy and integrity only.
type accessToken string

func (t accessToken) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	info, _ := credentials.RequestInfoFromContext(ctx)
	if err := credentials.CheckSecurityLevel(info.AuthInfo, credentials.PrivacyAndIntegrity); err != nil {
		return nil, fmt.Errorf("access_token credentials: %w", err)
	}
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

func (accessToken) RequireTransportSecurity() bool { return true }
