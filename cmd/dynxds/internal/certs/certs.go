// Package certs makes certificates for development: an authority, and what it signs for the
// services of a mesh. Their keys are in plain files or in memory, which is not for production.
package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// lifetime is how long certificates are valid.
const lifetime = 365 * 24 * time.Hour

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
	// keyPEM is the key, as it is kept in a folder.
	keyPEM []byte
}

// Pair is a certificate and its key, in PEM.
type Pair struct{ Cert, Key []byte }

// newAuthority makes an authority.
func newAuthority() (*Authority, error) {
	pair, err := (&Authority{}).sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "dynxds development authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	})
	if err != nil {
		return nil, err
	}
	return parse(pair)
}

func parse(pair Pair) (*Authority, error) {
	parsed, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.PrivateKey.(crypto.Signer)
	if !ok || !parsed.Leaf.IsCA {
		return nil, errors.New("the certificate is not that of an authority")
	}
	return &Authority{cert: parsed.Leaf, key: key, pem: pair.Cert, keyPEM: pair.Key}, nil
}

// The files of an authority in a folder.
const (
	caFile  = "ca.pem"
	keyFile = "ca" + keySuffix + ".pem"
)

// Open returns the authority of a folder, which it makes if there is none: the files ca.pem and
// ca-key.pem.
func Open(dir string) (*Authority, error) {
	cert, certErr := os.ReadFile(filepath.Join(dir, caFile))
	key, keyErr := os.ReadFile(filepath.Join(dir, keyFile))
	if errors.Is(certErr, fs.ErrNotExist) && errors.Is(keyErr, fs.ErrNotExist) {
		a, err := newAuthority()
		if err != nil {
			return nil, err
		}
		return a, errors.Join(os.MkdirAll(dir, 0o755), write(dir, keyFile, a.keyPEM, 0o600), write(dir, caFile, a.pem, 0o644))
	}
	if err := errors.Join(certErr, keyErr); err != nil {
		return nil, fmt.Errorf("the authority: %w", err)
	}
	a, err := parse(Pair{cert, key})
	if err != nil {
		return nil, fmt.Errorf("the authority %s: %w; delete it for a new one", filepath.Join(dir, caFile), err)
	}
	return a, nil
}

// write replaces a file at once, as programs may be reading it.
func write(dir, name string, data []byte, mode fs.FileMode) error {
	next := filepath.Join(dir, "."+name+".new")
	if err := os.WriteFile(next, data, mode); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, name))
}

// Pool has the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Issue makes a certificate for clients and servers. Its subject alternative name is the SPIFFE ID
// spiffe://domain/name.
func (a *Authority) Issue(domain, name string) (Pair, error) {
	id, err := ID(domain, name)
	if err != nil {
		return Pair{}, err
	}
	return a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, URIs: []*url.URL{id.URL()}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
}

// CheckFile returns an error for the name of a service whose files would replace others: the certificate or the key of the
// authority, or the key of another service. File systems may not tell "CA" from "ca".
func CheckFile(name string) error {
	switch lower := strings.ToLower(name); {
	case lower == "ca":
		return fmt.Errorf("the name %q is that of the authority", name)
	case strings.HasSuffix(lower, keySuffix):
		return fmt.Errorf("the name %q ends with %s, as the names of keys do: its certificate would replace the key of %q", name, keySuffix, name[:len(name)-len(keySuffix)])
	}
	return nil
}

// keySuffix ends the names of keys, before ".pem".
const keySuffix = "-key"

// ID is the SPIFFE ID of a certificate that Issue makes.
func ID(domain, name string) (spiffeid.ID, error) {
	trust, err := spiffeid.TrustDomainFromString(domain)
	if err != nil {
		return spiffeid.ID{}, fmt.Errorf("trust domain %q: %w", domain, err)
	}
	id, err := spiffeid.FromSegments(trust, name)
	if err != nil {
		return spiffeid.ID{}, fmt.Errorf("name %q: %w", name, err)
	}
	return id, nil
}

// Write issues a certificate, and writes the files NAME.pem and NAME-key.pem of a folder.
func (a *Authority) Write(dir, domain, name string) error {
	if err := CheckFile(name); err != nil {
		return err
	}
	pair, err := a.Issue(domain, name)
	if err != nil {
		return err
	}
	return errors.Join(write(dir, name+keySuffix+".pem", pair.Key, 0o600), write(dir, name+".pem", pair.Cert, 0o644))
}

// sign makes a key and a certificate, which an authority without a key signs by itself.
func (a *Authority) sign(template *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	now := time.Now()
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(lifetime)
	parent, signer := a.cert, a.key
	if signer == nil {
		parent, signer = template, key
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	}, nil
}
