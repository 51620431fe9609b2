// Command certs writes certificates for trying out mTLS, not for production: DIR/ca.pem is an authority, and DIR/NAME.pem with
// DIR/NAME-key.pem, for each NAME, are for a server or client with the SPIFFE ID spiffe://mesh/NAME, the DNS names NAME and localhost,
// and the address 127.0.0.1. Each run makes a new authority, whose key is not kept.
package main

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: go run ./examples/certs DIR NAME...")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "certs:", err)
		os.Exit(1)
	}
}

func write(dir string, names []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	ca := &x509.Certificate{
		Subject: pkix.Name{CommonName: "example authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caKey, err := issue(filepath.Join(dir, "ca.pem"), ca, ca, nil)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == "ca" || strings.HasSuffix(name, "-key") || strings.ContainsAny(name, `/\`) {
			return fmt.Errorf("the name %q is not that of a service", name)
		}
		key, err := issue(filepath.Join(dir, name+".pem"), &x509.Certificate{
			Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
			URIs:        []*url.URL{{Scheme: "spiffe", Host: "mesh", Path: "/" + name}},
			DNSNames:    []string{name, "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}, ca, caKey)
		if err != nil {
			return err
		}
		pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
		if err := errors.Join(err, writePEM(filepath.Join(dir, name+"-key.pem"), "PRIVATE KEY", pkcs8, 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// issue writes a certificate, which is valid for a year, and returns its key. Without a key of the authority it is signed by itself.
func issue(path string, certificate, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	certificate.NotBefore, certificate.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)
	signed, err := x509.CreateCertificate(rand.Reader, certificate, ca, key.Public(), cmp.Or(caKey, key))
	return key, errors.Join(err, writePEM(path, "CERTIFICATE", signed, 0o644))
}

func writePEM(path, kind string, data []byte, mode os.FileMode) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), mode)
}
