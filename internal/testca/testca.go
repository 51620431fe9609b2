// Package testca makes certificates for tests: an authority, and what it signs
// for both sides of a connection to localhost.
//
// Everything is made afresh in memory; authorities are valid for a year, and what they sign for an hour. Files puts it where
// code under test reads files.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA is a certificate authority.
type CA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// New makes an authority.
func New(t testing.TB) *CA {
	t.Helper()
	return (&CA{t: t}).Authority("test CA")
}

// Authority makes an authority that this one certifies.
func (ca *CA) Authority(name string) *CA {
	ca.t.Helper()
	next := &CA{t: ca.t}
	next.cert, next.key, next.pem = ca.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return next
}

// sign makes a certificate, signed by itself if the CA has none yet.
func (ca *CA) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(1)
	if template.NotAfter.IsZero() {
		lifetime := time.Hour
		if template.IsCA {
			lifetime = 365 * 24 * time.Hour
		}
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(lifetime)
	}
	parent, signer := ca.cert, ca.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		ca.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		ca.t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// PEM is the authority's own certificate.
func (ca *CA) PEM() []byte { return ca.pem }

// Cert is the authority's own certificate, parsed.
func (ca *CA) Cert() *x509.Certificate { return ca.cert }

// Expired is the template of a certificate for localhost that was valid until an hour ago.
func Expired() *x509.Certificate {
	return &x509.Certificate{DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}
}

// Leaf makes a certificate for localhost, usable by clients and servers, and its
// key, both in PEM.
func (ca *CA) Leaf() (cert, key []byte) {
	ca.t.Helper()
	return ca.Sign(&x509.Certificate{DNSNames: []string{"localhost"}})
}

// Sign is Leaf for the names and extensions of a template, which may leave the subject and
// the extended key usage open.
func (ca *CA) Sign(template *x509.Certificate) (cert, key []byte) {
	ca.t.Helper()
	leaf := *template
	if leaf.Subject.CommonName == "" {
		leaf.Subject = pkix.Name{CommonName: "test leaf"}
	}
	if leaf.ExtKeyUsage == nil {
		leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	}
	_, private, cert := ca.sign(&leaf)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		ca.t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// ServerConfig is that of a server that wants a client certificate of this CA.
func (ca *CA) ServerConfig() *tls.Config {
	ca.t.Helper()
	return &tls.Config{
		Certificates: []tls.Certificate{ca.Pair(&x509.Certificate{DNSNames: []string{"localhost"}})}, ClientCAs: ca.Pool(),
		ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2"},
	}
}

// ClientConfig is that of a client that trusts this CA, and has a certificate of
// it if identified.
func (ca *CA) ClientConfig(identified bool) *tls.Config {
	ca.t.Helper()
	config := &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"}
	if identified {
		config.Certificates = []tls.Certificate{ca.Pair(&x509.Certificate{DNSNames: []string{"localhost"}})}
	}
	return config
}

// Pair is Sign, parsed.
func (ca *CA) Pair(template *x509.Certificate) tls.Certificate {
	ca.t.Helper()
	pair, err := tls.X509KeyPair(ca.Sign(template))
	if err != nil {
		ca.t.Fatal(err)
	}
	return pair
}

// Pool has this authority alone.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// Files are the paths of an authority, a certificate and its key.
type Files struct {
	CA, Cert, Key string
	t             testing.TB
}

// NewFiles names files in a folder that goes with the test. There are none yet.
func NewFiles(t testing.TB) Files {
	t.Helper()
	dir := t.TempDir()
	return Files{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), t: t}
}

// Issue writes the CA's certificate, and a new leaf of it with its key.
func (f Files) Issue(ca *CA) {
	f.t.Helper()
	f.IssueFor(ca, &x509.Certificate{DNSNames: []string{"localhost"}})
}

// IssueFor is Issue for a leaf of a template.
func (f Files) IssueFor(ca *CA, template *x509.Certificate) {
	f.t.Helper()
	cert, key := ca.Sign(template)
	f.Write(f.CA, ca.PEM())
	f.Write(f.Cert, cert)
	f.Write(f.Key, key)
}

// Write replaces one of the files.
func (f Files) Write(path string, data []byte) {
	f.t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		f.t.Fatal(err)
	}
}
