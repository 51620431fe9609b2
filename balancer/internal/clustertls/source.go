package clustertls

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// materialTimeout bounds how long a handshake waits for a provider. A provider that takes
// longer has its material ready for the next attempt.
const materialTimeout = 5 * time.Second

// maxFetches bounds the handshakes that ask a provider at the same time: one that ignores
// its context holds a goroutine for each. The others wait.
const maxFetches = 16

// source is a certificate provider in the role that it has for a cluster. gRPC shares providers
// of the same plugin, configuration, certificate and role, over the whole process.
type source struct {
	role     role
	of       *xdsresource.CertificateInstance
	provider certprovider.Provider
	err      error         // why there is no provider
	fetches  chan struct{} // has an element for each call of the provider
}

// role is what a provider is for.
type role int

const (
	wantRoots role = iota
	wantIdentity
)

func (r role) String() string {
	if r == wantRoots {
		return "root certificates"
	}
	return "client certificate"
}

func newSource(of *xdsresource.CertificateInstance, r role) *source {
	s := &source{role: r, of: of, fetches: make(chan struct{}, maxFetches)}
	if of.Provider == nil || of.Provider.Buildable == nil {
		s.err = errors.New("there is no such provider in the bootstrap")
		return s
	}
	provider, err := of.Provider.Buildable.Build(certprovider.BuildOptions{
		CertName: of.Certificate, WantRoot: r == wantRoots, WantIdentity: r == wantIdentity,
	})
	if err != nil {
		// gRPC's error says no more than this, but for the configuration, which may hold secrets.
		s.err = errors.New("its plugin did not start it")
		return s
	}
	s.provider = provider
	return s
}

func (s *source) close() {
	if s != nil && s.provider != nil {
		s.provider.Close()
	}
}

// material returns what the provider has now. It has what the role is for.
func (s *source) material(ctx context.Context) (*certprovider.KeyMaterial, error) {
	m, err := s.fetch(ctx)
	switch {
	case err != nil:
	case m == nil || s.role == wantRoots && m.Roots == nil && m.SPIFFEBundleMap == nil || s.role == wantIdentity && len(m.Certs) == 0:
		err = errors.New("it has none")
	default:
		return m, nil
	}
	return nil, fmt.Errorf("no %v from %s: %w", s.role, s, err)
}

func (s *source) fetch(ctx context.Context) (*certprovider.KeyMaterial, error) {
	if s.err != nil {
		return nil, s.err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, materialTimeout, errTooLate)
	defer cancel()
	select {
	case s.fetches <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	type result struct {
		material *certprovider.KeyMaterial
		err      error
	}
	answer := make(chan result, 1)
	// The goroutine ends with the call, which may be later than ctx does.
	go func() {
		m, err := s.provider.KeyMaterial(ctx)
		<-s.fetches
		answer <- result{m, err}
	}()
	select {
	case r := <-answer:
		if r.err != nil && ctx.Err() != nil {
			r.err = context.Cause(ctx)
		}
		return r.material, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

var errTooLate = fmt.Errorf("it did not answer within %v", materialTimeout)

// String describes the provider for errors.
func (s *source) String() string {
	text := "certificate provider instance " + faults.Quote(s.of.Instance)
	if s.of.Certificate != "" {
		text += ", certificate " + faults.Quote(s.of.Certificate) + ","
	}
	if s.of.Provider != nil {
		text += " (" + s.of.Provider.PluginName + ")"
	}
	return text
}
