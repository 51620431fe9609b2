package certfiles

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials/tls/certprovider"
	"google.golang.org/grpc/grpclog"

	"github.com/dynxds/dynxds/internal/document"
)

var logger = grpclog.Component("dynxds-certificates")

// maxFile bounds each file, in bytes. A bundle of all public roots has a quarter of it.
const maxFile = 1 << 20

// Provider is a certprovider.Provider that reads its files when material is asked for and
// the last reading is older than the refresh interval. A handshake never gets older
// material than from a goroutine that polls, its error names the file that cannot be
// used, and there is nothing to stop. It is safe for concurrent use.
type Provider struct {
	files Config

	mu       sync.Mutex
	material *certprovider.KeyMaterial // nil until all files were good once
	loaded   time.Time
}

// NewProvider returns a provider of what the files hold. It reads nothing yet.
func NewProvider(files Config) *Provider { return &Provider{files: files} }

// KeyMaterial implements certprovider.Provider. Files that have become unusable do not
// replace good material: most likely they are being replaced at this moment.
func (p *Provider) KeyMaterial(context.Context) (*certprovider.KeyMaterial, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.material != nil && time.Since(p.loaded) < p.files.Refresh {
		return p.material, nil
	}
	material, err := p.files.load()
	switch {
	case err == nil:
		p.material, p.loaded = material, time.Now()
	case p.material == nil:
		return nil, err
	default:
		logger.Warningf("keeping the certificates read at %v: %v", p.loaded.Format(time.RFC3339), err)
	}
	return p.material, nil
}

// Close implements certprovider.Provider. It does nothing.
func (p *Provider) Close() {}

// load returns what the files hold now, or the first error.
func (c Config) load() (*certprovider.KeyMaterial, error) {
	var m certprovider.KeyMaterial
	switch {
	case c.SPIFFEBundleMap != "":
		data, err := read("spiffe_trust_bundle_map_file", c.SPIFFEBundleMap)
		if err != nil {
			return nil, err
		}
		if m.SPIFFEBundleMap, err = parseBundleMap(data); err != nil {
			return nil, fmt.Errorf("spiffe_trust_bundle_map_file %s: %w", c.SPIFFEBundleMap, err)
		}
	case c.CA != "":
		roots, err := readPEM("ca_certificate_file", c.CA)
		if err != nil {
			return nil, err
		}
		m.Roots = x509.NewCertPool()
		if !m.Roots.AppendCertsFromPEM(roots) {
			return nil, fmt.Errorf("ca_certificate_file %s: expected certificates in PEM form, found none", c.CA)
		}
	}
	if c.Certificate != "" {
		certificate, err := readPEM("certificate_file", c.Certificate)
		if err != nil {
			return nil, err
		}
		key, err := read("private_key_file", c.Key)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("certificate_file %s with private_key_file %s: %w", c.Certificate, c.Key, err)
		}
		m.Certs = []tls.Certificate{pair}
	}
	return &m, nil
}

// parseBundleMap reads a SPIFFE trust bundle map. One faulty bundle makes the map
// faulty, and a map without bundles is valid (gRFC A87).
func parseBundleMap(data []byte) (map[string]*spiffebundle.Bundle, error) {
	var found struct {
		TrustDomains map[string]json.RawMessage `json:"trust_domains"`
	}
	if err := json.Unmarshal(data, &found); err != nil {
		return nil, err
	}
	if found.TrustDomains == nil {
		return nil, fmt.Errorf("expected an object with the key trust_domains, found none")
	}
	bundles := make(map[string]*spiffebundle.Bundle, len(found.TrustDomains))
	for name, text := range found.TrustDomains {
		domain, err := spiffeid.TrustDomainFromString(name)
		if err != nil {
			return nil, fmt.Errorf("trust domain %q: %w", name, err)
		}
		if bundles[domain.Name()] != nil {
			return nil, fmt.Errorf("trust domain %q has two bundles, under different spellings of its name", domain.Name())
		}
		if bundles[domain.Name()], err = spiffebundle.Parse(domain, text); err != nil {
			return nil, fmt.Errorf("trust domain %q: %w", name, err)
		}
	}
	return bundles, nil
}

// beginPEM is how a block begins.
const beginPEM = "-----BEGIN "

// readPEM reads a file with certificates. One that ends within a block is being written: what
// it has is a part, which the parsers of certificates would take for the whole.
func readPEM(key, path string) ([]byte, error) {
	data, err := read(key, path)
	if err != nil {
		return nil, err
	}
	rest := data
	for block, after := pem.Decode(rest); block != nil; block, after = pem.Decode(rest) {
		rest = after
	}
	lastLine := rest[bytes.LastIndexByte(rest, '\n')+1:]
	if bytes.Contains(rest, []byte(beginPEM)) || len(lastLine) > 0 && strings.HasPrefix(beginPEM, string(lastLine)) {
		return nil, fmt.Errorf("%s %s: the last certificate is not complete; the file may be being written", key, path)
	}
	return data, nil
}

// read reads a regular file: opening a named pipe might never return.
func read(key, path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	var data []byte
	if err == nil {
		data, err = document.ReadFile(path, maxFile)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return data, nil
}
