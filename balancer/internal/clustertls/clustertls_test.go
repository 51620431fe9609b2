package clustertls

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/tls/certprovider"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// gRFC A29, "CDS for Client Side Security": TLS with roots, mTLS with an identity as well.
func TestTLSAndMutualTLS(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	in := instances{"roots": rootsOf(ca).instance("roots"), "identity": identityOf(ca).instance("identity")}
	simple, mutual := withNames(ca, "a"), withNames(ca, "a")
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
	// "The client certificate is sent to the server if the server requests it", also without a
	// hint of which issuers the server knows.
	requests := withNames(ca, "a")
	requests.ClientAuth, requests.ClientCAs = tls.RequestClientCert, testca.New(t).Pool()
	for name, tc := range map[string]struct {
		identity   string
		server     *tls.Config
		identified bool
	}{
		"TLS":                          {"", simple, false},
		"mTLS":                         {"identity", mutual, true},
		"a server that asks for none":  {"identity", simple, false},
		"a server that asks":           {"identity", requests, true},
		"no identity, and none wanted": {"", requests, false},
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			s := serve(t, tc.server)
			info, err := s.handshake(t, bundle(t, xdsmsg.UpstreamTLS(tc.identity, "roots", "a"), in))
			xdstest.NoError(t, err)
			xdstest.Equal(t, "the client is identified", tc.identified, len(<-s.peers) > 0)
			tlsInfo := info.(credentials.TLSInfo)
			if tlsInfo.SecurityLevel != credentials.PrivacyAndIntegrity || tlsInfo.State.NegotiatedProtocol != "h2" {
				t.Errorf("security level %v, protocol %q", tlsInfo.SecurityLevel, tlsInfo.State.NegotiatedProtocol)
			}
			// What an RPC makes its authority has to fit the certificate.
			if err := tlsInfo.ValidateAuthority("a:443"); err != nil {
				t.Error(err)
			}
			if tlsInfo.ValidateAuthority("b:443") == nil {
				t.Error("authority b is taken, and the certificate is for a")
			}
		})
	}
}

func TestServersThatAreRefused(t *testing.T) {
	t.Parallel()
	ca, stranger := testca.New(t), testca.New(t)
	expired := &tls.Config{Certificates: []tls.Certificate{ca.Pair(&x509.Certificate{
		DNSNames: []string{"a"}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
	})}}
	for name, tc := range map[string]struct {
		server *tls.Config
		want   []string
	}{
		// gRFC A29, "Server Authorization aka Subject-Alt-Name Checks": "the connection attempt
		// fails with "certificate check failure"".
		"another name":  {withNames(ca, "b"), []string{"certificate check failure", `DNS "b"`, `exact "a"`}},
		"expired":       {expired, []string{"expired", `DNS "a"`}},
		"of another CA": {withNames(stranger, "a"), []string{"x509", `DNS "a"`}},
		"plaintext":     {nil, []string{"does not speak TLS", "plaintext"}},
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			s := serve(t, tc.server)
			_, err := s.handshake(t, bundle(t, xdsmsg.UpstreamTLS("", "roots", "a"), instances{"roots": rootsOf(ca).instance("roots")}))
			check(t, err, tc.want...)
		})
	}
}

// A server that does not agree on HTTP/2 may take its bytes for another protocol.
func TestServersWithoutHTTP2(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	for want, protocols := range map[string][]string{"ALPN": {}, "application protocol": {"http/1.1"}} {
		config := withNames(ca, "a")
		config.NextProtos = protocols
		b := bundle(t, xdsmsg.UpstreamTLS("", "roots"), instances{"roots": rootsOf(ca).instance("r")})
		_, err := serve(t, config).handshake(t, b)
		check(t, err, want)
	}
}

// gRFC A82, "XdsCredentials Changes".
func TestSystemRoots(t *testing.T) {
	t.Parallel()
	if systemCA == nil {
		systemCA = testca.New(t)
		xdstest.NoError(t, os.WriteFile(systemRoots, systemCA.PEM(), 0o600))
	}
	b := bundle(t, xdsmsg.UpstreamTLS("", "", "a"), nil)
	if _, err := serve(t, withNames(systemCA, "a")).handshake(t, b); err != nil {
		t.Error(err)
	}
	_, err := serve(t, withNames(testca.New(t), "a")).handshake(t, b)
	check(t, err, "x509")
}

// gRFC A87, "Configuring SPIFFE Verification via xDS".
func TestSPIFFE(t *testing.T) {
	t.Parallel()
	ca, other := testca.New(t), testca.New(t)
	domain := spiffeid.RequireTrustDomainFromString("domain")
	in := instances{"roots": of(&certprovider.KeyMaterial{
		Roots:           other.Pool(),
		SPIFFEBundleMap: map[string]*spiffebundle.Bundle{"domain": spiffebundle.FromX509Authorities(domain, []*x509.Certificate{ca.Cert()})},
	}).instance("roots")}
	config := func(ca *testca.CA, id string) *tls.Config {
		u, err := url.Parse(id)
		xdstest.NoError(t, err)
		return &tls.Config{Certificates: []tls.Certificate{ca.Pair(&x509.Certificate{URIs: []*url.URL{u}})}}
	}
	b := bundle(t, xdsmsg.UpstreamTLS("", "roots", "spiffe://domain/a"), in)
	info, err := serve(t, config(ca, "spiffe://domain/a")).handshake(t, b)
	xdstest.NoError(t, err)
	if id := info.(credentials.TLSInfo).SPIFFEID; id == nil || id.String() != "spiffe://domain/a" {
		t.Errorf("SPIFFE ID %v", id)
	}
	_, err = serve(t, config(ca, "spiffe://domain/b")).handshake(t, b)
	check(t, err, "spiffe://domain/a", "spiffe://domain/b")
	_, err = serve(t, config(ca, "spiffe://other/a")).handshake(t, b)
	check(t, err, `"other"`)
	_, err = serve(t, config(other, "spiffe://domain/a")).handshake(t, b)
	check(t, err, "x509")
	_, err = serve(t, withNames(ca, "a")).handshake(t, b)
	check(t, err, "SPIFFE")
}

// Whatever is wrong with a provider fails the handshake, and names it.
func TestProvidersThatDoNotProvide(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	good := of(&certprovider.KeyMaterial{Roots: ca.Pool(), Certs: identityMaterial(ca)})
	failing := &provider{material: func(context.Context) (*certprovider.KeyMaterial, error) { return nil, errors.New("no such luck") }}
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
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			b := bundle(t, xdsmsg.UpstreamTLS("identity", "roots"), instances{"identity": tc.identity, "roots": tc.roots})
			_, err := serve(t, withNames(ca, "a")).handshake(t, b)
			if check(t, err, tc.want...); strings.Contains(err.Error(), "secret") {
				t.Errorf("the error has a value of the bootstrap: %v", err)
			}
		})
	}
	xdstest.Parallel(t, "not in a bootstrap", func(t *testing.T) {
		b, release := NewPool(true, nil, nil).Acquire("c", &xdsresource.Cluster{
			Security: &xdsresource.Security{Roots: &xdsresource.CertificateInstance{Instance: "x"}},
		})
		defer release()
		_, err := serve(t, withNames(ca, "a")).handshake(t, b)
		check(t, err, `"x"`, "no such provider")
	})
}

// A provider that panics fails the handshakes of its cluster, whatever it was asked to do.
func TestProvidersThatPanic(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	good := of(&certprovider.KeyMaterial{Roots: ca.Pool(), Certs: identityMaterial(ca)})
	asked := &provider{material: func(context.Context) (*certprovider.KeyMaterial, error) { panic("out of order") }}
	for name, tc := range map[string]struct {
		identity, roots *bootstrap.CertificateProvider
	}{
		"when it is asked for roots":       {good.instance("i"), asked.instance("r")},
		"when it is asked for an identity": {asked.instance("i"), good.instance("r")},
		"when it is built":                 {good.instance("i"), panics("x", func() { panic("out of order") })},
		"with much text":                   {good.instance("i"), panics("y", func() { panic("out of order" + strings.Repeat("x", 1<<20)) })},
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			b := bundle(t, xdsmsg.UpstreamTLS("identity", "roots"), instances{"identity": tc.identity, "roots": tc.roots})
			_, err := serve(t, withNames(ca, "a")).handshake(t, b)
			if check(t, err, "it panicked: out of order", "certificate provider instance"); len(err.Error()) > 5000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
	xdstest.Parallel(t, "when it is closed", func(t *testing.T) {
		lines := func() int {
			return logged.Count(`certificate provider instance "closing"`, "it panicked: out of order")
		}
		before := lines()
		s := newSource(&xdsresource.CertificateInstance{Instance: "closing", Provider: (&closePanics{}).instance()}, wantRoots)
		_, err := s.material(t.Context())
		xdstest.NoError(t, err)
		s.close()
		s.close()
		xdstest.Equal(t, "lines in the log, which has the first panic", 1, lines()-before)
	})
}

// panics is an entry of the bootstrap whose plugin calls f to build a provider.
func panics(name string, f func()) *bootstrap.CertificateProvider {
	return &bootstrap.CertificateProvider{PluginName: name, Buildable: certprovider.NewBuildableConfig(
		"test", anotherConfig(), func(certprovider.BuildOptions) certprovider.Provider {
			f()
			return nil
		})}
}

type closePanics struct{}

func (*closePanics) KeyMaterial(context.Context) (*certprovider.KeyMaterial, error) {
	return &certprovider.KeyMaterial{Roots: x509.NewCertPool()}, nil
}

func (*closePanics) Close() { panic("out of order") }

func (p *closePanics) instance() *bootstrap.CertificateProvider {
	return &bootstrap.CertificateProvider{Buildable: certprovider.NewBuildableConfig(
		"test", anotherConfig(), func(certprovider.BuildOptions) certprovider.Provider { return p })}
}

// A provider that could not be built is built again by a later handshake, and not by every one.
func TestAProviderIsBuiltAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts, works := 0, false
		p := of(&certprovider.KeyMaterial{Roots: x509.NewCertPool()})
		s := newSource(&xdsresource.CertificateInstance{Instance: "x", Provider: &bootstrap.CertificateProvider{
			PluginName: "moody",
			Buildable: certprovider.NewBuildableConfig("test", anotherConfig(), func(certprovider.BuildOptions) certprovider.Provider {
				if attempts++; works {
					return p
				}
				return nil
			}),
		}}, wantRoots)
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
		s.close()
		xdstest.Equal(t, "closed", 1, p.closed.Load())
		s.built()
		xdstest.Equal(t, "attempts after the end", 3, attempts)
	})
	// A provider that is ready only after its cluster is gone is closed.
	synctest.Test(t, func(t *testing.T) {
		p := of(&certprovider.KeyMaterial{Roots: x509.NewCertPool()})
		first, ready := true, make(chan struct{})
		s := newSource(&xdsresource.CertificateInstance{Provider: &bootstrap.CertificateProvider{
			Buildable: certprovider.NewBuildableConfig("test", anotherConfig(), func(certprovider.BuildOptions) certprovider.Provider {
				if first {
					first = false
					return nil
				}
				<-ready
				return p
			}),
		}}, wantRoots)
		time.Sleep(rebuildAfter)
		failed := make(chan error)
		go func() {
			_, err := s.material(t.Context())
			failed <- err
		}()
		synctest.Wait()
		s.close()
		close(ready)
		if err := <-failed; !errors.Is(err, errClosed) {
			t.Errorf("got error %v, want %v", err, errClosed)
		}
		xdstest.Equal(t, "closed", 1, p.closed.Load())
	})
}

func identityMaterial(ca *testca.CA) []tls.Certificate {
	return []tls.Certificate{ca.Pair(&x509.Certificate{DNSNames: []string{"client"}})}
}

// A server fills no logs and no statuses with what it sends.
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

// A provider or a server that never answers does not hold up a handshake for ever.
func TestWhatNeverAnswers(t *testing.T) {
	t.Parallel()
	never := func(ctx context.Context) (*certprovider.KeyMaterial, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	handshake := func(ctx context.Context, t *testing.T, p *provider) (time.Duration, error) {
		b := bundle(t, xdsmsg.UpstreamTLS("", "roots"), instances{"roots": p.instance("r")})
		client, silent := net.Pipe()
		defer silent.Close()
		start := time.Now()
		_, _, err := b.TransportCredentials().ClientHandshake(ctx, "", client)
		return time.Since(start), err
	}
	t.Run("provider", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			took, err := handshake(t.Context(), t, &provider{material: never})
			if check(t, err, `"roots"`, "did not answer within 5s"); took != materialTimeout {
				t.Errorf("failed after %v", took)
			}
		})
	})
	t.Run("provider, until the deadline of the connection", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			took, err := handshake(ctx, t, &provider{material: never})
			if check(t, err, `"roots"`, "deadline exceeded"); took != time.Second {
				t.Errorf("failed after %v", took)
			}
		})
	})
	t.Run("provider that ignores the context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			answer := make(chan struct{})
			defer close(answer)
			var calls atomic.Int64
			deaf := &provider{material: func(context.Context) (*certprovider.KeyMaterial, error) {
				calls.Add(1)
				<-answer
				return nil, nil
			}}
			b := bundle(t, xdsmsg.UpstreamTLS("", "roots"), instances{"roots": deaf.instance("r")})
			start := time.Now()
			var wg sync.WaitGroup
			for range 10 * maxFetches {
				wg.Go(func() {
					client, silent := net.Pipe()
					defer silent.Close()
					_, _, err := b.TransportCredentials().ClientHandshake(t.Context(), "", client)
					if err == nil || !strings.Contains(err.Error(), "did not answer within 5s") {
						t.Errorf("got error %v", err)
					}
				})
			}
			wg.Wait()
			if took := time.Since(start); took != materialTimeout || calls.Load() > maxFetches {
				t.Errorf("failed after %v with %d calls", took, calls.Load())
			}
		})
	})
	t.Run("server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := handshake(ctx, t, rootsOf(testca.New(t)))
			check(t, err, "the server did not answer in time")
		})
	})
}

// New handshakes use what has rotated; connections that are there are not touched.
func TestRotation(t *testing.T) {
	t.Parallel()
	oldCA, newCA := testca.New(t), testca.New(t)
	var current atomic.Pointer[testca.CA]
	rotating := &provider{material: func(context.Context) (*certprovider.KeyMaterial, error) {
		ca := current.Load()
		return &certprovider.KeyMaterial{Roots: ca.Pool(), Certs: identityMaterial(ca)}, nil
	}}
	config := func(ca *testca.CA) *tls.Config {
		c := withNames(ca, "a")
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
		return c
	}
	before, after := serve(t, config(oldCA)), serve(t, config(newCA))
	b := bundle(t, xdsmsg.UpstreamTLS("identity", "roots", "a"), instances{"identity": rotating.instance("i"), "roots": rotating.instance("r")})
	current.Store(oldCA)
	conn, _, err := b.TransportCredentials().ClientHandshake(t.Context(), "", before.dial(t))
	xdstest.NoError(t, err)
	_, err = after.handshake(t, b)
	check(t, err, "x509")
	current.Store(newCA)
	if _, err := after.handshake(t, b); err != nil {
		t.Error(err)
	}
	_, err = before.handshake(t, b)
	check(t, err, "x509")
	echo(t, conn)
}

// gRFC A101, "Proposal", "Setting SNI during Tls handshake" and "SAN SNI validation".
func TestServerNameIndication(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	in := instances{"roots": rootsOf(ca).instance("roots")}
	for _, tc := range []struct {
		name           string
		sni            string
		auto, validate bool
		hostname       string
		sans           []string
		sends          string
		fails          bool // the certificate is for *.example.com
	}{
		{name: "no name"},
		{name: "sni", sni: "x.example.org", sends: "x.example.org"},
		{name: "the host name takes precedence", sni: "x.example.org", auto: true, hostname: "a.example.com", sends: "a.example.com"},
		{name: "a port is left out", auto: true, hostname: "a.example.com:443", sends: "a.example.com"},
		{name: "no host name, but sni", sni: "x.example.org", auto: true, sends: "x.example.org"},
		{name: "no host name and no sni", auto: true},
		{name: "a host name that is not asked for", hostname: "a.example.com"},
		{name: "an IP address cannot be sent", auto: true, hostname: "127.0.0.1:80"},
		{name: "an IPv6 address cannot be sent", sni: "::1"},
		{name: "no IPv6 address to validate, but SANs", auto: true, hostname: "[::1]", validate: true, sans: []string{"c.example.com"}},
		{name: "the name is not validated", sni: "x.example.org", sends: "x.example.org", sans: []string{"a.example.com"}},
		{name: "the name is validated", sni: "a.example.com", validate: true, sends: "a.example.com", sans: []string{"replaced"}},
		{name: "the name is validated, and wrong", sni: "x.example.org", validate: true, sends: "x.example.org", fails: true},
		{name: "the host name is validated", auto: true, hostname: "b.example.com:1", validate: true, sends: "b.example.com"},
		{name: "the host name is validated, and wrong", auto: true, hostname: "example.com", validate: true, sends: "example.com", fails: true},
		{name: "no name to validate, but SANs", auto: true, validate: true, sans: []string{"c.example.com"}},
		{name: "no name to validate, and wrong SANs", validate: true, sans: []string{"c.example.org"}, fails: true},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			pb := xdsmsg.UpstreamTLS("", "roots", tc.sans...)
			pb.Sni, pb.AutoHostSni, pb.AutoSniSanValidation = tc.sni, tc.auto, tc.validate
			b, s := bundle(t, pb, in), serve(t, withNames(ca, "*.example.com"))
			cc := s.channel(t, b, tc.hostname)
			xdstest.Equal(t, "server name", tc.sends, <-s.hello)
			if tc.fails {
				failure(t, cc)
			} else {
				<-s.peers
			}
		})
	}
}

// channel connects through gRPC, which hands the attributes of the address to the handshake.
func (s *server) channel(t *testing.T, b *Bundle, hostname string) *grpc.ClientConn {
	t.Helper()
	r := manual.NewBuilderWithScheme("test")
	r.InitialState(resolver.State{Addresses: []resolver.Address{b.Address(s.addr, hostname, "")}})
	cc, err := grpc.NewClient("test:///authority.example.com", grpc.WithResolvers(r), grpc.WithCredentialsBundle(b))
	xdstest.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	cc.Connect()
	return cc
}

// failure waits until a channel cannot connect, and returns the reason.
func failure(t *testing.T, cc *grpc.ClientConn) error {
	t.Helper()
	for state := cc.GetState(); state != connectivity.TransientFailure; state = cc.GetState() {
		if !cc.WaitForStateChange(t.Context(), state) {
			t.Fatal("the test ends before the handshake fails")
		}
	}
	err := cc.Invoke(t.Context(), "/a/b", &emptypb.Empty{}, &emptypb.Empty{})
	if err == nil {
		t.Fatal("an RPC succeeds without a connection")
	}
	return errors.New(strings.ReplaceAll(err.Error(), `\"`, `"`))
}

// auto_sni_san_validation never stands for no validation: an IP address, which is not sent as a server
// name, has to be in the certificate unless SAN matchers say who is accepted, and without a name and
// matchers nobody is.
func TestValidationWithoutServerName(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	in := instances{"roots": rootsOf(ca).instance("roots")}
	byName := &x509.Certificate{DNSNames: []string{"*.example.com", "127.0.0.1"}}
	byAddress := &x509.Certificate{IPAddresses: []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP("::1")}}
	const wrong = "is not for the server name"
	for _, tc := range []struct {
		name     string
		sni      string
		auto     bool
		hostname string
		sans     []string
		cert     *x509.Certificate
		want     string // the reason of the failure; empty: there is none
	}{
		{name: "sni is an IP address", sni: "127.0.0.1", cert: byAddress},
		{name: "sni is an IP address, the certificate is for names", sni: "127.0.0.1", cert: byName, want: wrong},
		{name: "sni is an IPv6 address", sni: "::1", cert: byAddress},
		{name: "sni is another IP address", sni: "127.0.0.2", cert: byAddress, want: wrong},
		{name: "the host name is an IP address", auto: true, hostname: "127.0.0.1", cert: byAddress},
		{name: "the host name is an IP address with a port", auto: true, hostname: "127.0.0.1:443", cert: byAddress},
		{name: "the host name is an IPv6 address with a port", auto: true, hostname: "[::1]:443", cert: byAddress},
		{name: "the host name is an IP address, the certificate is for names", auto: true, hostname: "127.0.0.1:443", cert: byName, want: wrong},
		{name: "the host name takes precedence", sni: "127.0.0.1", auto: true, hostname: "127.0.0.2", cert: byAddress, want: wrong},
		{name: "matchers replace an address that is not sent", sni: "127.0.0.2", sans: []string{"a.example.com"}, cert: byName},
		{name: "matchers that do not match", sni: "127.0.0.1", sans: []string{"a.example.org"}, cert: byAddress, want: "certificate check failure"},
		{name: "neither a name nor matchers", cert: byName, want: "neither a server name nor a SAN matcher"},
		{name: "no host name and no matchers", auto: true, cert: byName, want: "neither a server name nor a SAN matcher"},
		{name: "a host name that is only a port", auto: true, hostname: ":443", cert: byName, want: "neither a server name nor a SAN matcher"},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			pb := xdsmsg.UpstreamTLS("", "roots", tc.sans...)
			pb.Sni, pb.AutoHostSni, pb.AutoSniSanValidation = tc.sni, tc.auto, true
			template := *tc.cert
			b := bundle(t, pb, in)
			s := serve(t, &tls.Config{Certificates: []tls.Certificate{ca.Pair(&template)}})
			cc := s.channel(t, b, tc.hostname)
			if tc.want != "" {
				check(t, failure(t, cc), tc.want)
				return
			}
			xdstest.Equal(t, "server name", "", <-s.hello)
			<-s.peers
		})
	}
}

// A server that refuses the client does so after the client's handshake.
func TestServerRefusesTheClient(t *testing.T) {
	t.Parallel()
	ca, stranger := testca.New(t), testca.New(t)
	in := instances{"roots": rootsOf(ca).instance("roots"), "identity": identityOf(stranger).instance("identity")}
	for identity, want := range map[string]string{"": "has no certificate", "identity": `certificate provider instance "identity"`} {
		config := withNames(ca, "a")
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
		conn, _, err := bundle(t, xdsmsg.UpstreamTLS(identity, "roots"), in).TransportCredentials().ClientHandshake(t.Context(), "", serve(t, config).dial(t))
		xdstest.NoError(t, err)
		_, err = conn.Read(make([]byte, 1))
		check(t, err, "may have refused the client", want)
		if _, err := conn.(syscall.Conn).SyscallConn(); err != nil {
			t.Errorf("the connection is not a socket to channelz: %v", err)
		}
	}
	// The end of a connection that was accepted is what it is.
	s := serve(t, withNames(ca, "a"))
	conn, _, err := bundle(t, xdsmsg.UpstreamTLS("", "roots"), in).TransportCredentials().ClientHandshake(t.Context(), "", s.dial(t))
	xdstest.NoError(t, err)
	echo(t, conn)
	conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "refused") {
		t.Errorf("error %v, want that of the closed connection", err)
	}
}

// A server of TLS 1.2 refuses the client during the handshake, which blames the client's certificate only for
// what is wrong with it.
func TestServerRefusesTheClientInTheHandshake(t *testing.T) {
	t.Parallel()
	ca, stranger := testca.New(t), testca.New(t)
	expired := of(&certprovider.KeyMaterial{Certs: []tls.Certificate{ca.Pair(&x509.Certificate{
		DNSNames: []string{"client"}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
	})}})
	for name, tc := range map[string]struct {
		identity *provider
		blamed   bool
	}{"expired": {expired, true}, "of another CA": {identityOf(stranger), false}} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			in := instances{"roots": rootsOf(ca).instance("roots"), "identity": tc.identity.instance("identity")}
			config := withNames(ca, "a")
			config.ClientAuth, config.ClientCAs, config.MaxVersion = tls.RequireAndVerifyClientCert, ca.Pool(), tls.VersionTLS12
			_, err := serve(t, config).handshake(t, bundle(t, xdsmsg.UpstreamTLS("identity", "roots"), in))
			check(t, err, "remote error")
			const blame = `the client has the certificate of certificate provider instance "identity" (plugin of identity), which expired at `
			if got := strings.Contains(err.Error(), blame); got != tc.blamed {
				t.Errorf("error %q: it blames the certificate: %t, want %t", err, got, tc.blamed)
			} else if !tc.blamed && strings.Contains(err.Error(), "the client has") {
				t.Errorf("error %q mentions a certificate that is valid", err)
			}
		})
	}
}

// gRFC A29, "xDS credentials": security settings of the Cluster count only on channels that leave security to the
// control plane. Then connections without them are no longer good enough when they are set.
func TestOnlyChannelsThatObeyAreSecured(t *testing.T) {
	t.Parallel()
	asked := security(t, xdsmsg.UpstreamTLS("", "roots"), instances{"roots": rootsOf(testca.New(t)).instance("roots")})
	obeys, ignores := NewPool(true, nil, nil), NewPool(false, nil, nil)
	for _, tc := range []struct {
		name            string
		pool            *Pool
		cluster         xdsresource.Cluster
		secure, special bool // special: not made as those of any channel
		stricter        bool // than connections without security
	}{
		{name: "obeys, no security", pool: obeys},
		{name: "obeys, no security, a proxy", pool: obeys, cluster: xdsresource.Cluster{HTTPConnect: true}, special: true},
		{name: "obeys, security", pool: obeys, cluster: xdsresource.Cluster{Security: asked}, secure: true, special: true, stricter: true},
		{name: "ignores, security", pool: ignores, cluster: xdsresource.Cluster{Security: asked}},
		{name: "ignores, security, a proxy", pool: ignores, cluster: xdsresource.Cluster{Security: asked, HTTPConnect: true}, special: true},
		{name: "no Pool", cluster: xdsresource.Cluster{Security: asked, HTTPConnect: true}},
	} {
		key := tc.pool.Key("c", &tc.cluster)
		xdstest.Equal(t, tc.name+": secure", tc.secure, key.Secure())
		xdstest.Equal(t, tc.name+": special", tc.special, key != Key{})
		xdstest.Equal(t, tc.name+": stricter than none", tc.stricter, tc.pool.Stricter(nil, tc.cluster.Security))
		xdstest.Equal(t, tc.name+": stricter than the same", false, tc.pool.Stricter(tc.cluster.Security, tc.cluster.Security))
	}
}

// Errors of a client that offers no TLS, or no certificate, to a server that seems to want it say who can act.
func TestAdvice(t *testing.T) {
	t.Parallel()
	const obey, ask = "dial with credentials of google.golang.org/grpc/credentials/xds", "the Cluster asks for no TLS"
	ended := fmt.Errorf("error reading server preface: %w", io.EOF)
	reset := fmt.Errorf("error reading server preface: %w", syscall.ECONNRESET)
	timeout := fmt.Errorf("error reading server preface: %w", os.ErrDeadlineExceeded)
	certificate := errors.New("remote error: tls: certificate required")
	obeys, ignores := NewPool(true, nil, nil), NewPool(false, nil, nil)
	secured := bundle(t, xdsmsg.UpstreamTLS("", ""), nil)
	for _, tc := range []struct {
		name   string
		pool   *Pool
		bundle *Bundle
		err    error
		want   []string // nothing: the error stays as it is
	}{
		{"ended, ignores", ignores, nil, ended, []string{"TLS or mTLS", obey}},
		{"ended, obeys", obeys, nil, ended, []string{"TLS or mTLS", ask}},
		{"reset", obeys, &Bundle{}, reset, []string{"TLS or mTLS", ask}},
		{"a certificate, ignores", ignores, nil, certificate, []string{"the server wants a certificate of the client", obey}},
		{"a certificate, obeys", obeys, &Bundle{}, certificate, []string{"the server wants a certificate of the client", ask}},
		{"too late", obeys, nil, timeout, nil},
		{"another end", obeys, nil, io.EOF, nil},
		{"already secured", obeys, secured, certificate, nil},
		{"no Pool", nil, nil, ended, nil},
		{"no error", obeys, nil, nil, nil},
	} {
		err := tc.pool.Advise(tc.err, tc.bundle)
		if !errors.Is(err, tc.err) || len(tc.want) == 0 && err != tc.err {
			t.Errorf("%s: error %v became %v", tc.name, tc.err, err)
		}
		for _, part := range tc.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %q, want it to contain %q", tc.name, err, part)
			}
		}
	}
}

// Bundles and providers live as long as they are held, and equal ones are shared.
func TestBundlesAreShared(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	p := rootsOf(ca)
	in := instances{"roots": p.instance("roots"), "other": p.instance("other")}
	pool := NewPool(true, nil, nil)
	one, releaseOne := pool.Acquire("c", &xdsresource.Cluster{Security: security(t, xdsmsg.UpstreamTLS("", "roots"), in)})
	same, releaseSame := pool.Acquire("c", &xdsresource.Cluster{Security: security(t, xdsmsg.UpstreamTLS("", "roots"), in)})
	other, releaseOther := pool.Acquire("c", &xdsresource.Cluster{Security: security(t, xdsmsg.UpstreamTLS("", "roots", "san"), in)})
	elsewhere, releaseElsewhere := pool.Acquire("d", &xdsresource.Cluster{Security: security(t, xdsmsg.UpstreamTLS("", "roots"), in)})
	if one != same || one == other || one == elsewhere {
		t.Errorf("%p and %p for the same, %p and %p for others", one, same, other, elsewhere)
	}
	held := one.Hold()
	for _, release := range []func(){releaseOne, releaseSame, releaseOther, releaseElsewhere} {
		release()
	}
	if n := p.closed.Load(); n != 0 {
		t.Fatalf("the provider is closed %d times while a Bundle is held", n)
	}
	if _, err := serve(t, withNames(ca, "a")).handshake(t, one); err != nil {
		t.Error(err)
	}
	held()
	xdstest.Equal(t, "how often the provider is closed", 1, p.closed.Load())
	// Its handshakes fail from now on.
	_, err := serve(t, withNames(ca, "a")).handshake(t, one)
	check(t, err, `"roots"`)
}

// What is open when a Bundle is released for the last time stays, unless the Bundle is outdated.
func TestConnectionsOfAnOutdatedBundleEnd(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	in := instances{"roots": rootsOf(ca).instance("roots")}
	secure := &xdsresource.Cluster{Security: security(t, xdsmsg.UpstreamTLS("", "roots"), in)}
	for name, c := range map[string]*xdsresource.Cluster{"TLS": secure, "plaintext": {}} {
		s := serve(t, withNames(ca, "a"))
		if c.Security == nil {
			s = serveEcho(t)
		}
		pool := NewPool(true, insecure.NewCredentials(), nil)
		// connect returns a connection of a Bundle that a SubConn holds.
		connect := func(t *testing.T) (b *Bundle, conn net.Conn, release, held func()) {
			b, release = pool.Acquire("c", c)
			held = b.Hold()
			conn, _, err := b.TransportCredentials().ClientHandshake(t.Context(), "", s.dial(t))
			xdstest.NoError(t, err)
			echo(t, conn)
			return b, conn, release, held
		}
		t.Run(name+" outdated", func(t *testing.T) {
			b, conn, release, held := connect(t)
			b.Outdate()
			release()
			echo(t, conn)
			read := make(chan error)
			go func() {
				_, err := conn.Read(make([]byte, 1))
				read <- err
			}()
			held()
			if err := <-read; err == nil || !strings.Contains(err.Error(), `cluster "c" asks for stricter security than this connection has`) {
				t.Errorf("a read fails with %v", err)
			}
			conn.Close()
			// A handshake that was under way.
			_, _, err := b.TransportCredentials().ClientHandshake(t.Context(), "", s.dial(t))
			if err == nil {
				t.Error("a handshake succeeds afterwards")
			}
		})
		t.Run(name+" in use again", func(t *testing.T) {
			b, conn, release, held := connect(t)
			b.Outdate()
			release()
			_, again := pool.Acquire("c", c)
			held()
			again()
			echo(t, conn)
			conn.Close()
		})
		t.Run(name+" not outdated", func(t *testing.T) {
			_, conn, release, held := connect(t)
			release()
			held()
			echo(t, conn)
			conn.Close()
		})
	}
}

// serveEcho is serve for plaintext.
func serveEcho(t *testing.T) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	s := &server{addr: l.Addr().String()}
	s.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() {
				defer conn.Close()
				io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.wg.Wait()
	})
	return s
}

type token struct{ credentials.PerRPCCredentials }

type channelBundle struct {
	credentials.Bundle
	perRPC credentials.PerRPCCredentials
}

func (b channelBundle) PerRPCCredentials() credentials.PerRPCCredentials { return b.perRPC }

// The Bundle of a connection replaces that of the channel, whose call credentials stay.
func TestCallCredentialsOfTheChannelStay(t *testing.T) {
	t.Parallel()
	in := instances{"roots": rootsOf(testca.New(t)).instance("roots")}
	want := &token{}
	b, release := NewPool(true, nil, channelBundle{insecure.NewBundle(), want}).Acquire("c", &xdsresource.Cluster{Security: security(t, xdsmsg.UpstreamTLS("", "roots"), in)})
	defer release()
	if got := b.PerRPCCredentials(); got != want {
		t.Errorf("call credentials %v, want %v", got, want)
	}
	if got := bundle(t, xdsmsg.UpstreamTLS("", "roots"), in).PerRPCCredentials(); got != nil {
		t.Errorf("call credentials %v, want none", got)
	}
}

// What is part of the interfaces and of no use to a client.
func TestForClientsOnly(t *testing.T) {
	t.Parallel()
	b := bundle(t, xdsmsg.UpstreamTLS("", ""), nil)
	creds := b.TransportCredentials()
	if _, err := b.NewWithMode("x"); err == nil {
		t.Error("NewWithMode works")
	}
	//lint:ignore SA1019 It is part of the interface.
	if err := creds.OverrideServerName("x"); err == nil {
		t.Error("OverrideServerName works")
	}
	if _, _, err := creds.ServerHandshake(nil); err == nil {
		t.Error("ServerHandshake works")
	}
	if creds.Clone() != creds || creds.Info().SecurityProtocol != "tls" {
		t.Errorf("clone %v, info %+v", creds.Clone(), creds.Info())
	}
}
