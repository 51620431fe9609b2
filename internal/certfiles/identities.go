package certfiles

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"slices"
	"sync"
	"time"
)

// Identity is a certificate that the process presents to its peers.
type Identity struct {
	// File is the path as it is configured.
	File string `json:"file"`
	// NotBefore and NotAfter are from when and until when the certificate, and all issuers that are in the file, are valid.
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
}

// Left returns how long the certificate is still valid, which is negative after its end.
func (i Identity) Left() time.Duration { return time.Until(i.NotAfter) }

// Lifetime returns how long the certificate is valid in all.
func (i Identity) Lifetime() time.Duration { return i.NotAfter.Sub(i.NotBefore) }

// Ending reports whether less than a tenth of the lifetime is left: what renews certificates, of an hour or of a year, does so before.
func (i Identity) Ending() bool { return i.Left() < i.Lifetime()/10 }

// inUse has the Providers of the process that have an identity, and its file.
var inUse = struct {
	sync.Mutex
	files map[*Provider]string
}{files: make(map[*Provider]string)}

// Identities returns the certificates of all Providers that are not closed, as the files say now, or when they were last usable: one for
// each file, in the order of the files. It is safe for concurrent use, and reads files as rarely as KeyMaterial does.
func Identities() []Identity {
	inUse.Lock()
	files := maps.Clone(inUse.files)
	inUse.Unlock()
	var all []Identity
	for p, file := range files {
		if certs := p.certificates(); len(certs) > 0 {
			all = append(all, identityOf(file, &certs[0]))
		}
	}
	slices.SortFunc(all, func(a, b Identity) int { return cmp.Or(cmp.Compare(a.File, b.File), a.NotAfter.Compare(b.NotAfter)) })
	return slices.CompactFunc(all, func(a, b Identity) bool { return a.File == b.File })
}

// certificates returns the identity, nothing if it was never good.
func (p *Provider) certificates() []tls.Certificate {
	p.mu.Lock()
	defer p.unlock()
	_ = p.updateIdentity() // then there is none
	return p.material.Certs
}

func identityOf(file string, c *tls.Certificate) Identity {
	i := Identity{File: file}
	for _, der := range c.Certificate {
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			break // Package tls does not parse more than the first one either.
		}
		if i.NotAfter.IsZero() || parsed.NotAfter.Before(i.NotAfter) {
			i.NotAfter = parsed.NotAfter
		}
		if parsed.NotBefore.After(i.NotBefore) {
			i.NotBefore = parsed.NotBefore
		}
	}
	return i
}
