package clustertls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// materialTimeout bounds how long a handshake waits for a provider. A provider that takes
// longer has its material ready for the next attempt.
const materialTimeout = 5 * time.Second

// maxFetches bounds the handshakes that ask a provider at the same time: one that ignores
// its context holds a goroutine for each. The others wait.
const maxFetches = 16

// rebuildAfter is how long a provider that could not be built is not built again.
const rebuildAfter = time.Second

// source is a certificate provider that a cluster has for one of two things. gRPC shares providers
// of the same plugin, configuration, certificate and purpose, over the whole process.
type source struct {
	roots   bool // it is for root certificates, and otherwise for that of the client
	of      *xdsresource.CertificateInstance
	fetches chan struct{} // has an element for each call of the provider
	doubted atomic.Bool   // a handshake has failed since the provider was last asked

	// mu guards the provider, also while that is built.
	mu       sync.Mutex
	provider certprovider.Provider // nil: it could not be built yet
	err      error                 // why not
	next     time.Time             // when it may be built again
	closed   bool
}

// newSource returns nil if of is nil.
func newSource(of *xdsresource.CertificateInstance, roots bool) *source {
	if of == nil {
		return nil
	}
	s := &source{roots: roots, of: of, fetches: make(chan struct{}, maxFetches)}
	go s.built() // So that the provider has its material ready for the first handshake. A plugin may block.
	return s
}

// built returns the provider. If the first attempts to build it have failed, it is built again.
func (s *source) built() (certprovider.Provider, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errClosed
	case s.provider == nil && !time.Now().Before(s.next):
		s.provider, s.err = s.of.Provider.Build(certprovider.BuildOptions{CertName: s.of.Certificate, WantRoot: s.roots, WantIdentity: !s.roots})
		s.next = time.Now().Add(rebuildAfter)
	}
	return s.provider, s.err
}

var errClosed = errors.New("the cluster does not use it any more")

// close ends the provider. A plugin may block. The source may be nil.
func (s *source) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	provider := s.provider
	s.mu.Unlock()
	if provider != nil {
		provider.Close()
	}
}

// material returns what the provider has now. It has what the source is for.
func (s *source) material(ctx context.Context) (*certprovider.KeyMaterial, error) {
	what := "client certificate"
	if s.roots {
		what = "root certificates"
	}
	m, err := s.fetch(ctx)
	switch {
	case err != nil:
	case s.roots && m.Roots == nil && m.SPIFFEBundleMap == nil || !s.roots && len(m.Certs) == 0:
		err = errors.New("it has none")
	default:
		return m, nil
	}
	return nil, fmt.Errorf("no %s from %s: %w", what, s, err)
}

func (s *source) fetch(ctx context.Context) (*certprovider.KeyMaterial, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, materialTimeout, errTooLate)
	defer cancel()
	select {
	case s.fetches <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var m *certprovider.KeyMaterial
	var err error
	answered := make(chan struct{})
	// The goroutine ends with the call, which may be later than ctx does.
	go func() {
		m, err = s.call(ctx)
		<-s.fetches
		close(answered)
	}()
	select {
	case <-answered:
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return m, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// call asks the provider, which may take longer than ctx allows.
func (s *source) call(ctx context.Context) (*certprovider.KeyMaterial, error) {
	provider, err := s.built()
	if err != nil {
		return nil, err
	}
	if s.doubted.Swap(false) {
		ctx = certfiles.Doubt(ctx)
	}
	return provider.KeyMaterial(ctx)
}

// doubt is called when a handshake with the material has failed. The source may be nil.
func (s *source) doubt() {
	if s != nil {
		s.doubted.Store(true)
	}
}

// invalid returns a clause that says why a certificate of the provider is not valid at this time, or "" if it is valid, or nil.
func (s *source) invalid(c *tls.Certificate) string {
	if c == nil {
		return ""
	}
	why := certfiles.Invalid(c)
	if why != "" && s.of.Provider.PluginName == certfiles.PluginName {
		files, _ := certfiles.Parse(s.of.Provider.Config)
		why += " (replace certificate_file " + files.Certificate + ")"
	}
	if why != "" {
		why = ", which " + why
	}
	return why
}

var errTooLate = fmt.Errorf("it did not answer within %v", materialTimeout)

// String describes the provider for errors.
func (s *source) String() string {
	text := "certificate provider instance " + faults.Quote(s.of.Instance)
	if s.of.Certificate != "" {
		text += ", certificate " + faults.Quote(s.of.Certificate) + ","
	}
	return text + " (" + s.of.Provider.PluginName + ")"
}
