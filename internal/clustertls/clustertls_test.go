package clustertls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
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
	expired := &tls.Config{Certificates: []tls.Certificate{ca.Pair(testca.Expired())}}
	for name, tc := range map[string]struct {
		server *tls.Config
		want   []string
	}{
		// gRFC A29, "Server Authorization aka Subject-Alt-Name Checks": "the connection attempt
		// fails with "certificate check failure"".
		"another name":  {withNames(ca, "b"), []string{"certificate check failure", `DNS "b"`, `exact "a"`}},
		"expired":       {expired, []string{"expired", `DNS "localhost"`}},
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
	bubble := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
	bubble("provider", func(t *testing.T) {
		took, err := handshake(t.Context(), t, &provider{material: never})
		if check(t, err, `"roots"`, "did not answer within 5s"); took != materialTimeout {
			t.Errorf("failed after %v", took)
		}
	})
	bubble("provider, until the deadline of the connection", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		took, err := handshake(ctx, t, &provider{material: never})
		if check(t, err, `"roots"`, "deadline exceeded"); took != time.Second {
			t.Errorf("failed after %v", took)
		}
	})
	bubble("provider that ignores the context", func(t *testing.T) {
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
	bubble("server", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := handshake(ctx, t, rootsOf(testca.New(t)))
		check(t, err, "the server did not answer in time")
	})
}

type token struct{ credentials.PerRPCCredentials }
