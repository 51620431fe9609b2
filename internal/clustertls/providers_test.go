package clustertls

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// Whatever is wrong with a provider, a panic, too, fails the handshake, and names it in a short text.
func TestProvidersThatDoNotProvide(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	good := of(&certprovider.KeyMaterial{Roots: ca.Pool(), Certs: identityMaterial(ca)})
	failing := &provider{material: func(context.Context) (*certprovider.KeyMaterial, error) { return nil, errors.New("no such luck") }}
	asked := &provider{material: func(context.Context) (*certprovider.KeyMaterial, error) { panic("out of order") }}
	panicked := []string{"it panicked: out of order", "certificate provider instance"}
	unbuildable := &bootstrap.CertificateProvider{PluginName: "broken", Buildable: certprovider.NewBuildableConfig(
		"broken", []byte(`{"token": "secret"}`), func(certprovider.BuildOptions) certprovider.Provider { return nil })}
	files := testca.NewFiles(t)
	missing := &bootstrap.CertificateProvider{PluginName: "file_watcher",
		Buildable: certfiles.Config{CA: files.CA, Certificate: files.Cert, Key: files.Key, Refresh: time.Hour}.Buildable()}
	for name, tc := range map[string]struct {
		identity, roots *bootstrap.CertificateProvider
		want            []string
	}{
		"no roots":                   {good.instance("i"), of(&certprovider.KeyMaterial{}).instance("r"), []string{"no root certificates", `"roots" (plugin of r)`, "it has none"}},
		"no identity":                {of(&certprovider.KeyMaterial{Roots: ca.Pool()}).instance("i"), good.instance("r"), []string{"no client certificate"}},
		"nothing":                    {of(nil).instance("i"), good.instance("r"), []string{`"identity" (plugin of i)`, "it has none"}},
		"an error":                   {good.instance("i"), failing.instance("r"), []string{`"roots" (plugin of r)`, "no such luck"}},
		"one that cannot be built":   {good.instance("i"), unbuildable, []string{`"roots" (broken)`}},
		"missing files for roots":    {good.instance("i"), missing, []string{"file_watcher", files.CA, "no such file"}},
		"missing files for identity": {missing, good.instance("r"), []string{"file_watcher", files.Cert, "no such file"}},
		"a panic for roots":          {good.instance("i"), asked.instance("r"), panicked},
		"a panic for an identity":    {asked.instance("i"), good.instance("r"), panicked},
		"a panic when it is built":   {good.instance("i"), builtBy("x", func() certprovider.Provider { panic("out of order") }), panicked},
		"a panic with much text":     {good.instance("i"), builtBy("y", func() certprovider.Provider { panic("out of order" + strings.Repeat("x", 1<<20)) }), panicked},
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			b := bundle(t, xdsmsg.UpstreamTLS("identity", "roots"), instances{"identity": tc.identity, "roots": tc.roots})
			_, err := serve(t, withNames(ca, "a")).handshake(t, b)
			if check(t, err, tc.want...); strings.Contains(err.Error(), "secret") {
				t.Errorf("the error has a value of the bootstrap: %v", err)
			}
			if len(err.Error()) > 5000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// closePanics is a provider of roots that panics when it is closed.
type closePanics struct{}

func (closePanics) KeyMaterial(context.Context) (*certprovider.KeyMaterial, error) {
	return &certprovider.KeyMaterial{Roots: x509.NewCertPool()}, nil
}

func (closePanics) Close() { panic("out of order") }

// The source is ended all the same, and the log has the panic.
func TestAProviderThatPanicsWhenItIsClosed(t *testing.T) {
	t.Parallel()
	name := fmt.Sprint("closing", plugins.Add(1)) // which no other run of the test has logged
	s := newSource(&xdsresource.CertificateInstance{Provider: builtBy(name, func() certprovider.Provider { return closePanics{} })}, true)
	_, err := s.material(t.Context())
	xdstest.NoError(t, err)
	s.close()
	s.close()
	xdstest.NoError(t, logged.Wait(t.Context(), name))
	xdstest.Equal(t, "lines in the log, which has the first panic", 1, logged.Count(name, "it panicked: out of order"))
}

// A provider that could not be built is built again by a later handshake, and not by every one.
func TestAProviderIsBuiltAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts, works := 0, false
		p := of(&certprovider.KeyMaterial{Roots: x509.NewCertPool()})
		s := newSource(&xdsresource.CertificateInstance{Instance: "x", Provider: builtBy("moody", func() certprovider.Provider {
			if attempts++; works {
				return p
			}
			return nil
		})}, true)
		fails := func() {
			t.Helper()
			if _, err := s.material(t.Context()); err == nil || !strings.Contains(err.Error(), `"x" (moody)`) || !strings.Contains(err.Error(), "did not start") {
				t.Errorf("got error %v", err)
			}
		}
		for range 100 {
			fails()
		}
		xdstest.Equal(t, "attempts at once", 1, attempts)
		time.Sleep(rebuildAfter)
		fails()
		fails()
		xdstest.Equal(t, "attempts later", 2, attempts)
		works = true
		time.Sleep(rebuildAfter)
		for range 3 {
			_, err := s.material(t.Context())
			xdstest.NoError(t, err)
		}
		xdstest.Equal(t, "attempts in the end", 3, attempts)
		go s.close()
		synctest.Wait()
		xdstest.Equal(t, "closed", 1, p.closed.Load())
		s.built()
		xdstest.Equal(t, "attempts after the end", 3, attempts)
	})
	// A provider that is ready only after its cluster is gone is closed.
	synctest.Test(t, func(t *testing.T) {
		p := of(&certprovider.KeyMaterial{Roots: x509.NewCertPool()})
		ready := make(chan struct{})
		s := newSource(&xdsresource.CertificateInstance{Provider: builtBy("", func() certprovider.Provider {
			<-ready
			return p
		})}, true)
		synctest.Wait()
		(&Bundle{roots: s}).close() // which does not wait for the plugin
		close(ready)
		synctest.Wait()
		xdstest.Equal(t, "closed", 1, p.closed.Load())
	})
}

func identityMaterial(ca *testca.CA) []tls.Certificate {
	return []tls.Certificate{ca.Pair(&x509.Certificate{DNSNames: []string{"client"}})}
}

// A server cannot fill logs and statuses with its texts.
func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	// Package x509 quotes a URI that is none.
	pair := ca.Pair(&x509.Certificate{URIs: []*url.URL{{Scheme: "https", Host: strings.Repeat("long", 10_000)}}})
	leaf := slices.Clone(pair.Certificate[0])
	leaf[bytes.Index(leaf, []byte("longlong"))] = 1
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leaf}, PrivateKey: pair.PrivateKey}}}
	b := bundle(t, xdsmsg.UpstreamTLS("", "roots"), instances{"roots": rootsOf(ca).instance("r")})
	_, err := serve(t, config).handshake(t, b)
	if check(t, err, "parse", "longlong"); len(err.Error()) > 10_000 {
		t.Errorf("the error has %d characters", len(err.Error()))
	}
}
