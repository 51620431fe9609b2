package certfiles

import (
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/dynxds/dynxds/internal/testca"
)

func parsePEM(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// bundleOf returns the SPIFFE bundle of a trust domain with the CA as its only root.
func bundleOf(t *testing.T, ca *testca.CA, domain string) string {
	t.Helper()
	name := spiffeid.RequireTrustDomainFromString(domain)
	text, err := spiffebundle.FromX509Authorities(name, []*x509.Certificate{parsePEM(t, ca.PEM())}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestVerifySPIFFE(t *testing.T) {
	t.Parallel()
	ca, other := testca.New(t), testca.New(t)
	bundles, err := parseBundleMap([]byte(`{"trust_domains": {"example.org": ` + bundleOf(t, ca, "example.org") + `, "other.org": ` + bundleOf(t, other, "other.org") + `}}`))
	if err != nil {
		t.Fatal(err)
	}
	uri := func(text string) *url.URL {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for _, test := range []struct {
		given    string
		ca       *testca.CA
		template x509.Certificate
		err      string
	}{
		{"a server of the domain", ca, x509.Certificate{URIs: []*url.URL{uri("spiffe://example.org/xds")}}, ""},
		{"a server of another domain", other, x509.Certificate{URIs: []*url.URL{uri("spiffe://other.org/xds")}}, ""},
		{"a root of another domain", other, x509.Certificate{URIs: []*url.URL{uri("spiffe://example.org/xds")}}, "could not verify leaf certificate: x509: certificate signed by unknown authority"},
		{"an unknown domain", ca, x509.Certificate{URIs: []*url.URL{uri("spiffe://unknown.org/xds")}}, `no X.509 bundle for trust domain "unknown.org"`},
		{"no SPIFFE ID", ca, x509.Certificate{DNSNames: []string{"localhost"}}, "certificate contains no URI SAN"},
		{"another URI", ca, x509.Certificate{URIs: []*url.URL{uri("https://example.org/xds")}}, "scheme is missing or invalid"},
		{"two URIs", ca, x509.Certificate{URIs: []*url.URL{uri("spiffe://example.org/a"), uri("spiffe://example.org/b")}}, "certificate contains more than one URI SAN"},
		{"a CA", ca, x509.Certificate{URIs: []*url.URL{uri("spiffe://example.org/xds")}, IsCA: true, BasicConstraintsValid: true}, "leaf certificate with CA flag set to true"},
		{"a client", ca, x509.Certificate{URIs: []*url.URL{uri("spiffe://example.org/xds")}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
			"the certificate of spiffe://example.org/xds is not for servers: its extended key usage does not have serverAuth"},
	} {
		t.Run(test.given, func(t *testing.T) {
			t.Parallel()
			leaf, _ := test.ca.Sign(&test.template)
			id, err := VerifySPIFFE(bundles, []*x509.Certificate{parsePEM(t, leaf)})
			switch {
			case test.err == "" && (err != nil || id.String() != test.template.URIs[0].String()):
				t.Errorf("got %v and error %v, want %v", id, err, test.template.URIs[0])
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("got error %v, want %s", err, test.err)
			}
		})
	}
	if _, err := VerifySPIFFE(bundles, nil); err == nil {
		t.Error("a server without a certificate was accepted")
	}
}
