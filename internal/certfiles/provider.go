package certfiles

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/jsondoc"
)

var logger = boundlog.Component("dynxds-certificates")

// maxFile bounds each file, in bytes. A bundle of all public roots has a quarter of it.
const maxFile = 1 << 20

// soon is how long the files are not read again while their material is in doubt.
const soon = time.Second

// Provider is a certprovider.Provider that reads its files when material is asked for and
// the last reading is older than the refresh interval. A handshake never gets older
// material than from a goroutine that polls, its error names the file that cannot be
// used, and there is no goroutine to stop. It is safe for concurrent use.
//
// Material in doubt is read again before the interval is over: a certificate that is not valid now, and everything
// after a handshake has failed ([Doubt]).
//
// The roots and the identity rotate apart: a root that was removed is not trusted any longer because the
// client's key is unreadable, nor does a faulty file of roots keep an old certificate in use.
type Provider struct {
	refresh time.Duration
	// OnKept is called, without locks, with what makes files unusable, and when the material that stays in use was read. By default
	// it logs that. Another function is set before the Provider is used.
	OnKept func(err error, read time.Time)

	mu              sync.Mutex
	roots, identity part
	material        *certprovider.KeyMaterial // of both parts, as they were last read
	kept            []func()                  // calls of OnKept that are due
}

// part is material that is read, and kept, by itself.
type part struct {
	read func(into *certprovider.KeyMaterial) error // nil: the configuration does not have it
	// loaded is when the files were last read and good, which is zero before, and looked when they were last read.
	loaded, looked time.Time
	doubted        bool
}

// file is a file by the key of the configuration that names it.
type file struct{ key, path string }

func (f file) String() string { return f.key + " " + f.path }

// NewProvider returns a provider of what the files hold. It reads nothing yet.
func NewProvider(files Config) *Provider {
	p := &Provider{refresh: files.Refresh, material: new(certprovider.KeyMaterial)}
	p.OnKept = func(err error, read time.Time) {
		logger.Warningf("keeping what was read at %v: %v", read.Format(time.RFC3339), err)
	}
	switch {
	case files.SPIFFEBundleMap != "":
		p.roots.read = file{"spiffe_trust_bundle_map_file", files.SPIFFEBundleMap}.bundleMap
	case files.CA != "":
		p.roots.read = file{cmp.Or(files.CAName, "ca_certificate_file"), files.CA}.roots
	}
	if files.Certificate != "" {
		p.identity.read = identity{
			file{cmp.Or(files.CertificateName, "certificate_file"), files.Certificate},
			file{cmp.Or(files.KeyName, "private_key_file"), files.Key},
		}.read
		inUse.Lock()
		defer inUse.Unlock()
		inUse.files[p] = files.Certificate
	}
	return p
}

// KeyMaterial implements certprovider.Provider. Files that have become unusable do not
// replace good material: most likely they are being replaced at this moment.
func (p *Provider) KeyMaterial(ctx context.Context) (*certprovider.KeyMaterial, error) {
	p.mu.Lock()
	defer p.unlock()
	if ctx.Value(doubtKey{}) != nil {
		p.roots.doubted, p.identity.doubted = true, true
	}
	if err := cmp.Or(p.update(&p.roots), p.updateIdentity()); err != nil {
		return nil, err
	}
	return p.material, nil
}

// updateIdentity is update for the identity, which is in doubt once it is not valid.
func (p *Provider) updateIdentity() error {
	if certs := p.material.Certs; len(certs) > 0 && Invalid(&certs[0]) != "" {
		p.identity.doubted = true
	}
	return p.update(&p.identity)
}

// update reads a part again if that is due. It returns an error if the part was never good.
func (p *Provider) update(part *part) error {
	isDue := part.loaded.IsZero() || time.Since(part.loaded) >= p.refresh || part.doubted && time.Since(part.looked) >= soon
	if part.read == nil || !isDue {
		return nil
	}
	next := *p.material
	err := part.read(&next)
	part.looked = time.Now()
	switch {
	case err == nil:
		part.loaded, part.doubted, p.material = part.looked, false, &next
	case part.loaded.IsZero():
		return err
	default:
		read := part.loaded
		p.kept = append(p.kept, func() { p.OnKept(err, read) })
	}
	return nil
}

// unlock unlocks mu and then makes the calls that are due: a log that is slow delays no other handshake.
func (p *Provider) unlock() {
	due := p.kept
	p.kept = nil
	p.mu.Unlock()
	for _, call := range due {
		call()
	}
}

// Close implements certprovider.Provider. The certificate is none of the Identities any more.
func (p *Provider) Close() {
	inUse.Lock()
	defer inUse.Unlock()
	delete(inUse.files, p)
}

func (f file) bundleMap(into *certprovider.KeyMaterial) error {
	text, err := f.read()
	if err != nil {
		return err
	}
	if into.SPIFFEBundleMap, err = parseBundleMap(text); err != nil {
		return fmt.Errorf("%v: %w", f, err)
	}
	return nil
}

func (f file) roots(into *certprovider.KeyMaterial) error {
	text, err := f.readCertificates()
	if err != nil {
		return err
	}
	into.Roots = x509.NewCertPool()
	if !into.Roots.AppendCertsFromPEM(text) {
		return fmt.Errorf("%v: expected certificates in PEM form, found none", f)
	}
	return nil
}

type identity struct{ certificate, key file }

func (i identity) read(into *certprovider.KeyMaterial) error {
	certificate, err := i.certificate.readCertificates()
	if err != nil {
		return err
	}
	key, err := i.key.read()
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("%v with %v: %w", i.certificate, i.key, err)
	}
	into.Certs = []tls.Certificate{pair}
	return nil
}

// parseBundleMap reads a SPIFFE trust bundle map. One faulty bundle makes the map
// faulty, and a map without bundles is valid (gRFC A87).
func parseBundleMap(data []byte) (map[string]*spiffebundle.Bundle, error) {
	var found faults.Faults
	v, err := jsondoc.Parse(data, &found)
	if err != nil {
		return nil, err
	}
	bundles := make(map[string]*spiffebundle.Bundle)
	domains := v.Object("trust_domains").Field("trust_domains")
	if !domains.Present() {
		domains.Expected("an object")
	}
	for name, value := range domains.Entries() {
		domain, err := spiffeid.TrustDomainFromString(name)
		if err != nil {
			value.Fault("", "%v", err)
			continue
		}
		if bundles[domain.Name()] != nil {
			value.Fault("", "expected one bundle for trust domain %s, found two", domain.Name())
		}
		if bundles[domain.Name()], err = spiffebundle.Parse(domain, value.Raw()); err != nil {
			value.Fault("", "%v", err)
		}
	}
	if found.Total() > 0 {
		return nil, errors.New(faults.Shorten(found.Join("; "), faults.MaxProblem)) // Each RPC has the error.
	}
	return bundles, nil
}

// beginPEM is how a block begins.
const beginPEM = "-----BEGIN "

// readCertificates reads a file with certificates. One that ends within a block is being written: it has only a part, which
// the parsers of certificates would take for the whole.
func (f file) readCertificates() ([]byte, error) {
	text, err := f.read()
	if err != nil {
		return nil, err
	}
	rest := text
	for block, after := pem.Decode(rest); block != nil; block, after = pem.Decode(rest) {
		rest = after
	}
	lastLine := rest[bytes.LastIndexByte(rest, '\n')+1:]
	if bytes.Contains(rest, []byte(beginPEM)) || len(lastLine) > 0 && strings.HasPrefix(beginPEM, string(lastLine)) {
		return nil, fmt.Errorf("%v: the last certificate is not complete; the file may be being written", f)
	}
	return text, nil
}

func (f file) read() ([]byte, error) {
	data, err := bounds.ReadFile(f.path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.key, err)
	}
	return data, nil
}
