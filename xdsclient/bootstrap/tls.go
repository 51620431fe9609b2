package bootstrap

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/jsondoc"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/peercert"
)

// parseTLS is for the type "tls" (gRFC A65): TLS, and mutual TLS if there is a client
// certificate.
func parseTLS(config jsondoc.Value) (build BuildCredentials, warning string) {
	o := config.Object(append(certfiles.Keys(), serverIDs)...)
	files, hasBundles := certfiles.Read(o), !o.Field("spiffe_trust_bundle_map_file").Absent()
	accepted := parseServerIDs(o.Field(serverIDs), hasBundles)
	if hasBundles && o.Field(serverIDs).Absent() {
		warning = fmt.Sprintf("can be any workload with a certificate of the trust domains in spiffe_trust_bundle_map_file: "+
			"no other name is checked; list the SPIFFE IDs of the server in %s.%s", config.Path(), serverIDs)
	}
	return func() (credentials.Bundle, func(), error) {
		provider := certfiles.NewProvider(files)
		return tlsBundle{creds: newReloadingTLS(provider, "certificate_file "+files.Certificate, accepted...)}, provider.Close, nil
	}, warning
}

// serverIDs is the key with the SPIFFE IDs that a management server may have. A trust bundle map says
// which domains are trusted, and every workload of a domain has a certificate: without the key each
// of them can pose as the server.
const serverIDs = "server_spiffe_ids"

// parseServerIDs reads the key: IDs, and IDs that end with "/*" for all below them.
func parseServerIDs(ids jsondoc.Value, hasBundles bool) (accepted []peercert.Matcher) {
	if ids.Absent() {
		return nil
	}
	if !hasBundles {
		ids.Fault("", "expected spiffe_trust_bundle_map_file beside it, found none: the server is known by the host name in server_uri")
	}
	const what = `a SPIFFE ID such as "spiffe://example.org/control-plane", or "spiffe://example.org/ns/mesh/*" for all below it`
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
	return accepted
}

// tlsBundle has one mode.
type tlsBundle struct {
	creds credentials.TransportCredentials
	call  credentials.PerRPCCredentials // nil: none
}

func (b tlsBundle) TransportCredentials() credentials.TransportCredentials { return b.creds }

func (b tlsBundle) PerRPCCredentials() credentials.PerRPCCredentials { return b.call }

func (tlsBundle) NewWithMode(string) (credentials.Bundle, error) {
	return nil, errors.New("these credentials have no modes")
}

// reloadingTLS shakes hands with the material that its provider has at that time.
type reloadingTLS struct {
	credentials.TransportCredentials // for the methods that are as TLS has them
	provider                         certprovider.Provider
	certificate                      string             // where the client's comes from
	accepted                         []peercert.Matcher // of servers whose certificates SPIFFE bundles verify; empty: any
	doubted                          atomic.Bool        // a handshake has failed since the provider was last asked
}

func newReloadingTLS(provider certprovider.Provider, certificate string, accepted ...peercert.Matcher) *reloadingTLS {
	return &reloadingTLS{TransportCredentials: credentials.NewTLS(nil), provider: provider, certificate: certificate, accepted: accepted}
}

func (c *reloadingTLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	asking := ctx
	if c.doubted.Swap(false) {
		asking = certfiles.Doubt(ctx)
	}
	material, err := c.provider.KeyMaterial(asking)
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
		return nil, nil, peercert.Bounded(c.failed(material, err))
	}
	if len(material.Certs) == 0 {
		return secured, info, nil
	}
	return &peercert.Conn{Conn: secured, Explain: func(err error, accepted bool) error {
		if accepted {
			return err
		}
		return fmt.Errorf("the connection ended right after the TLS handshake; the server may have refused the client's certificate: %w", c.failed(material, err))
	}}, info, nil
}

// failed notes that material did not do in a handshake. The error that it returns says so if the client's certificate is not valid.
func (c *reloadingTLS) failed(material *certprovider.KeyMaterial, err error) error {
	c.doubted.Store(true)
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && unverified && invalid.Cert != nil {
		err = fmt.Errorf("%w (the certificate of %s)", err, faults.Quote(invalid.Cert.Subject.String()))
	}
	if len(material.Certs) > 0 {
		if why := certfiles.Invalid(&material.Certs[0]); why != "" {
			return fmt.Errorf("%w; the client's certificate, %s, %s: replace it", err, c.certificate, why)
		}
	}
	return err
}

func (c *reloadingTLS) Clone() credentials.TransportCredentials {
	return newReloadingTLS(c.provider, c.certificate, c.accepted...)
}
