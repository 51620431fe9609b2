package bootstrap

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/peercert"
)

// tlsBuilder is the type "tls" (gRFC A65): TLS, and mutual TLS if there is a client
// certificate.
type tlsBuilder struct{}

func (tlsBuilder) Type() string { return "tls" }

func (tlsBuilder) ParseConfig(config json.RawMessage) (BuildCredentials, error) {
	files, err := certfiles.Parse(config)
	if err != nil {
		return nil, err
	}
	return func() (credentials.Bundle, func(), error) {
		return tlsBundle{&reloadingTLS{certfiles.NewProvider(files)}}, nil, nil
	}, nil
}

// tlsBundle has one mode and no call credentials.
type tlsBundle struct {
	creds credentials.TransportCredentials
}

func (b tlsBundle) TransportCredentials() credentials.TransportCredentials { return b.creds }

func (tlsBundle) PerRPCCredentials() credentials.PerRPCCredentials { return nil }

func (tlsBundle) NewWithMode(string) (credentials.Bundle, error) {
	return nil, errors.New("tls credentials for a management server have no modes")
}

// reloadingTLS shakes hands with the material that its provider has at that time.
type reloadingTLS struct{ provider certprovider.Provider }

func (c *reloadingTLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	material, err := c.provider.KeyMaterial(ctx)
	if err != nil {
		return nil, nil, err
	}
	config := &tls.Config{RootCAs: material.Roots, Certificates: material.Certs}
	if bundles := material.SPIFFEBundleMap; bundles != nil {
		config.InsecureSkipVerify = true // SPIFFE's rules replace the standard library's
		required := peercert.Requirements{Bundles: bundles}
		config.VerifyConnection = func(state tls.ConnectionState) error { return required.Verify(state.PeerCertificates) }
	}
	secured, info, err := credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
	if err != nil {
		return nil, nil, peercert.Bounded(err)
	}
	return secured, info, nil
}

func (c *reloadingTLS) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("tls credentials for a management server are for clients only")
}

func (c *reloadingTLS) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (c *reloadingTLS) Clone() credentials.TransportCredentials { return &reloadingTLS{c.provider} }

// OverrideServerName is part of the interface; gRPC has no use for it any more.
func (c *reloadingTLS) OverrideServerName(string) error {
	return errors.New("tls credentials for a management server take the server's name from server_uri")
}
