// Package peercert verifies the certificate that a server presents in a TLS handshake as
// xDS asks for it (gRFC A29, A87, A101): its chain up to trusted roots, its SPIFFE ID and
// its subject alternative names (SANs). Conn explains why a connection ends right after its handshake.
//
// The package does no handshakes and does not know where roots come from.
package peercert

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
)

// Requirements say which certificates are accepted. They are read-only.
type Requirements struct {
	// Roots are the trusted roots. nil: those of the system (gRFC A82).
	Roots *x509.CertPool
	// Bundles, unless nil, replace Roots: the roots by trust domain (gRFC A87). Only SPIFFE
	// certificates of these domains are accepted.
	Bundles map[string]*spiffebundle.Bundle
	// MaxDepth, unless nil, bounds the number of CA certificates in the chain, the root among
	// them (CertificateValidationContext.max_verify_depth).
	MaxDepth *uint32
	// ServerName, unless empty, is the DNS name or the IP address that the certificate has to be
	// for. SANs are not looked at then (gRFC A101).
	ServerName string
	// SANs are matched against the SANs of the certificate: one has to match. Empty: any
	// certificate will do, even one without SANs.
	SANs []Matcher
}

// Verify verifies the chain of a server, the leaf first. Its errors list the SANs of the leaf
// and what was required of them.
func (r *Requirements) Verify(chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("the server presented no certificate")
	}
	leaf := chain[0]
	roots, err := r.rootsFor(leaf)
	if err != nil {
		return err
	}
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	chains, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return fmt.Errorf("the server's certificate (%s) is not valid: %w%s", describe(leaf), err, issuerIn(err, leaf))
	}
	if err := r.checkDepth(chains); err != nil {
		return err
	}
	if !maySign(leaf) {
		return fmt.Errorf("the server's certificate (%s) is not for TLS: its key usage lacks digitalSignature", describe(leaf))
	}
	return r.checkNames(leaf)
}

// issuerIn names the certificate that an error of package x509 is about, if it is not the leaf: an authority's may have expired.
func issuerIn(err error, leaf *x509.Certificate) string {
	var invalid x509.CertificateInvalidError
	if !errors.As(err, &invalid) || invalid.Cert == nil || invalid.Cert.Equal(leaf) {
		return ""
	}
	return fmt.Sprintf(" (this is about the certificate of its issuer, %s)", faults.Quote(invalid.Cert.Subject.String()))
}

// maySign reports whether the key of a leaf may sign handshakes, as it does in TLS 1.3 and with all cipher suites of
// TLS 1.2 that package tls offers (RFC 8446, section 4.4.2.2). Package x509 does not look at the key usage of leaves.
func maySign(leaf *x509.Certificate) bool {
	return leaf.KeyUsage&x509.KeyUsageDigitalSignature != 0 || extension(leaf, oidKeyUsage) == nil
}

var (
	oidKeyUsage = asn1.ObjectIdentifier{2, 5, 29, 15}
	oidSANs     = asn1.ObjectIdentifier{2, 5, 29, 17}
)

// extension returns the extension of a certificate, or nil.
func extension(c *x509.Certificate, id asn1.ObjectIdentifier) *pkix.Extension {
	i := slices.IndexFunc(c.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(id) })
	if i < 0 {
		return nil
	}
	return &c.Extensions[i]
}

func (r *Requirements) checkDepth(chains [][]*x509.Certificate) error {
	if r.MaxDepth == nil {
		return nil
	}
	for _, chain := range chains {
		if uint64(len(chain)-1) <= uint64(*r.MaxDepth) {
			return nil
		}
	}
	return fmt.Errorf("the chain of the server's certificate has more than max_verify_depth = %d CA certificates", *r.MaxDepth)
}

// rootsFor returns the roots that the leaf's chain has to end in.
func (r *Requirements) rootsFor(leaf *x509.Certificate) (*x509.CertPool, error) {
	if r.Bundles == nil {
		return r.Roots, nil
	}
	id, err := SPIFFEID(leaf)
	if err != nil {
		return nil, fmt.Errorf("the server's certificate (%s) is not a SPIFFE certificate, and the trusted roots are SPIFFE bundles: %w",
			describe(leaf), err)
	}
	domain := id.TrustDomain().Name()
	bundle := r.Bundles[domain]
	if bundle == nil {
		return nil, fmt.Errorf("the server is %s, and there is no SPIFFE bundle for trust domain %s", faults.Quote(id.String()), faults.Quote(domain))
	}
	roots := x509.NewCertPool()
	for _, c := range bundle.X509Authorities() {
		roots.AddCert(c)
	}
	return roots, nil
}

// SPIFFEID returns the SPIFFE ID of a leaf certificate, which has to be well-formed: one URI SAN, and no rights of a CA (X509-SVID, "Leaf
// Validation"). The URI is read as it is in the certificate: package url forgets an empty fragment. The case of its scheme means nothing
// (RFC 3986, section 3.1).
func SPIFFEID(leaf *x509.Certificate) (spiffeid.ID, error) {
	found := uris(leaf)
	switch {
	case len(found) != 1:
		return spiffeid.ID{}, fmt.Errorf("it has %d URI SANs, want one", len(found))
	case leaf.IsCA:
		return spiffeid.ID{}, errors.New("it is the certificate of a CA")
	case leaf.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0:
		return spiffeid.ID{}, errors.New("its key usage has keyCertSign or cRLSign")
	}
	scheme, rest, _ := strings.Cut(found[0], ":")
	return spiffeid.FromString(strings.ToLower(scheme) + ":" + rest)
}

func (r *Requirements) checkNames(leaf *x509.Certificate) error {
	if r.ServerName != "" {
		if isFor(leaf, r.ServerName) {
			return nil
		}
		return fmt.Errorf("the server's certificate (%s) is not for the server name %s (auto_sni_san_validation)", describe(leaf), faults.Quote(r.ServerName))
	}
	if len(r.SANs) == 0 {
		return nil
	}
	sans := names(leaf)
	var required []string
	for _, m := range r.SANs {
		if slices.ContainsFunc(sans, func(n name) bool { return m.matches(n.kind, n.value) }) {
			return nil
		}
		required = append(required, m.String())
	}
	return fmt.Errorf("certificate check failure: the server's certificate (%s) has no SAN that matches %s",
		describe(leaf), faults.Few(required, maxListed, " or "))
}

// describe lists the SANs of a certificate, for errors.
func describe(leaf *x509.Certificate) string {
	var found []string
	for _, n := range names(leaf) {
		found = append(found, n.kind.String()+" "+faults.Quote(n.value))
	}
	if len(found) == 0 {
		return "without SANs"
	}
	return faults.Few(found, maxListed, ", ")
}

// maxListed bounds how many names an error lists; a peer may send thousands.
const maxListed = 10

// maxError bounds the errors of handshakes, in bytes. Those of Verify fit with all they list.
const maxError = 6000

// Bounded returns the error of a handshake as one line of limited length: packages x509 and tls quote from the
// certificates of the peer, which may send hundreds of kilobytes of them, and each RPC and each line of the log would
// repeat that.
func Bounded(err error) error { return errors.New(bounds.Text(err.Error(), maxError)) }
