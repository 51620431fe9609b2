package bootstrap

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/document"
	"github.com/dynxds/dynxds/internal/matching"
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
	accepted, err := parseServerIDs(config, files.SPIFFEBundleMap != "")
	if err != nil {
		return nil, err
	}
	return func() (credentials.Bundle, func(), error) {
		return tlsBundle{&reloadingTLS{certfiles.NewProvider(files), accepted}}, nil, nil
	}, nil
}

// serverIDs is the key with the SPIFFE IDs that a management server may have. A trust bundle map says
// which domains are trusted, and every workload of a domain has a certificate: without the key each
// of them can pose as the server.
const serverIDs = "server_spiffe_ids"

// parseServerIDs reads the key: IDs, and IDs that end with "/*" for all below them.
func parseServerIDs(config json.RawMessage, hasBundles bool) ([]peercert.Matcher, error) {
	found := new(Faults)
	v, err := document.ParseJSON(config, found)
	if err != nil {
		return nil, err
	}
	ids := v.Object(serverIDs).Field(serverIDs)
	if ids.Absent() {
		return nil, nil
	}
	if !hasBundles {
		ids.Fault("", "expected spiffe_trust_bundle_map_file beside it, found none: the server is known by the host name in server_uri")
	}
	const what = `a SPIFFE ID such as "spiffe://example.org/control-plane", or "spiffe://example.org/ns/mesh/*" for all below it`
	var accepted []peercert.Matcher
	for _, element := range ids.NonEmpty("a list with at least one SPIFFE ID") {
		text, ok := element.NonEmptyText(what)
		if !ok {
			continue
		}
		kind, id := matching.StringExact, text
		if above, all := strings.CutSuffix(text, "/*"); all {
			kind, id = matching.StringPrefix, above
		}
		if _, err := spiffeid.FromString(id); err != nil {
			element.Fault("", "expected %s, found another text: %v", what, err)
			continue
		}
		accepted = append(accepted, peercert.Matcher{Type: peercert.URI, Value: matching.NewString(kind, strings.TrimSuffix(text, "*"), false)})
	}
	return accepted, found.Err()
}

// impostorWarning returns a function that warns, once, that any workload of the trust domains can pose as a management
// server, or nil if that is not so: config is that of credentials of type tls.
func impostorWarning(uri string, config document.Value) func() {
	if config.Peek("spiffe_trust_bundle_map_file").Absent() || !config.Peek(serverIDs).Absent() {
		return nil
	}
	return sync.OnceFunc(func() {
		logger.Warningf("management server %s can be any workload with a certificate of the trust domains in spiffe_trust_bundle_map_file: "+
			"no other name is checked; list the SPIFFE IDs of the server in %s.%s", uri, config.Position().Path, serverIDs)
	})
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
type reloadingTLS struct {
	provider certprovider.Provider
	accepted []peercert.Matcher // of servers whose certificates SPIFFE bundles verify; empty: any
}

func (c *reloadingTLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	material, err := c.provider.KeyMaterial(ctx)
	if err != nil {
		return nil, nil, err
	}
	config := &tls.Config{RootCAs: material.Roots, Certificates: material.Certs}
	if bundles := material.SPIFFEBundleMap; bundles != nil {
		config.InsecureSkipVerify = true // SPIFFE's rules replace the standard library's
		required := peercert.Requirements{Bundles: bundles, SANs: c.accepted}
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

func (c *reloadingTLS) Clone() credentials.TransportCredentials {
	return &reloadingTLS{c.provider, c.accepted}
}

// OverrideServerName is part of the interface; gRPC has no use for it any more.
func (c *reloadingTLS) OverrideServerName(string) error {
	return errors.New("tls credentials for a management server take the server's name from server_uri")
}
