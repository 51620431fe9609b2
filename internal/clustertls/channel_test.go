package clustertls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/tls/certprovider"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// gRFC A101, "Proposal", "Setting SNI during Tls handshake" and "SAN SNI validation".
func TestServerNameIndication(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	in := instances{"roots": rootsOf(ca).instance("roots")}
	byName := &x509.Certificate{DNSNames: []string{"*.example.com", "127.0.0.1"}}
	byAddress := &x509.Certificate{IPAddresses: []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP("::1")}}
	const wrong = "is not for the server name"
	for _, tc := range []struct {
		name           string
		sni            string
		auto, validate bool
		hostname       string
		sans           []string
		sends          string
		cert           *x509.Certificate // nil: for *.example.com
		fails          string            // the reason; empty: it does not
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
		{name: "the name is validated, and wrong", sni: "x.example.org", validate: true, sends: "x.example.org", fails: wrong},
		{name: "the host name is validated", auto: true, hostname: "b.example.com:1", validate: true, sends: "b.example.com"},
		{name: "the host name is validated, and wrong", auto: true, hostname: "example.com", validate: true, sends: "example.com", fails: wrong},
		{name: "no name to validate, but SANs", auto: true, validate: true, sans: []string{"c.example.com"}},
		{name: "no name to validate, and wrong SANs", validate: true, sans: []string{"c.example.org"}, fails: "certificate check failure"},
		// auto_sni_san_validation never stands for no validation: an IP address, which is not sent as a server
		// name, has to be in the certificate unless SAN matchers say who is accepted, and without a name and
		// matchers nobody is.
		{name: "sni is an IP address", sni: "127.0.0.1", validate: true, cert: byAddress},
		{name: "sni is an IP address, the certificate is for names", sni: "127.0.0.1", validate: true, cert: byName, fails: wrong},
		{name: "sni is an IPv6 address", sni: "::1", validate: true, cert: byAddress},
		{name: "sni is another IP address", sni: "127.0.0.2", validate: true, cert: byAddress, fails: wrong},
		{name: "the host name is an IP address", auto: true, hostname: "127.0.0.1", validate: true, cert: byAddress},
		{name: "the host name is an IP address with a port", auto: true, hostname: "127.0.0.1:443", validate: true, cert: byAddress},
		{name: "the host name is an IPv6 address with a port", auto: true, hostname: "[::1]:443", validate: true, cert: byAddress},
		{name: "the host name is an IP address, the certificate is for names", auto: true, hostname: "127.0.0.1:443", validate: true, cert: byName, fails: wrong},
		{name: "a host name that is an address takes precedence", sni: "127.0.0.1", auto: true, hostname: "127.0.0.2", validate: true, cert: byAddress, fails: wrong},
		{name: "matchers replace an address that is not sent", sni: "127.0.0.2", sans: []string{"a.example.com"}, validate: true, cert: byName},
		{name: "matchers that do not match", sni: "127.0.0.1", sans: []string{"a.example.org"}, validate: true, cert: byAddress, fails: "certificate check failure"},
		{name: "neither a name nor matchers", validate: true, cert: byName, fails: "neither a server name nor a SAN matcher"},
		{name: "no host name and no matchers", auto: true, validate: true, cert: byName, fails: "neither a server name nor a SAN matcher"},
		{name: "a host name that is only a port", auto: true, hostname: ":443", validate: true, cert: byName, fails: "neither a server name nor a SAN matcher"},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			pb := xdsmsg.UpstreamTLS("", "roots", tc.sans...)
			pb.Sni, pb.AutoHostSni, pb.AutoSniSanValidation = tc.sni, tc.auto, tc.validate
			config := withNames(ca, "*.example.com")
			if tc.cert != nil {
				template := *tc.cert
				config.Certificates[0] = ca.Pair(&template)
			}
			b, s := bundle(t, pb, in), serve(t, config)
			cc := s.channel(t, b, tc.hostname)
			if tc.fails == "" || tc.sends != "" {
				xdstest.Equal(t, "server name", tc.sends, <-s.hello)
			}
			if tc.fails != "" {
				check(t, failure(t, cc), tc.fails)
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
	expired := of(&certprovider.KeyMaterial{Certs: []tls.Certificate{ca.Pair(testca.Expired())}})
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
		xdstest.Equal(t, tc.name+": secure", tc.secure, key.secure)
		xdstest.Equal(t, tc.name+": special", tc.special, key != Key{})
		xdstest.Equal(t, tc.name+": stricter than none", tc.stricter, tc.pool.Stricter(nil, tc.cluster.Security))
		xdstest.Equal(t, tc.name+": stricter than the same", false, tc.pool.Stricter(tc.cluster.Security, tc.cluster.Security))
	}
}

// Errors of a client that offers no TLS, or no certificate, to a server that seems to want it say who can act.
func TestAdvice(t *testing.T) {
	t.Parallel()
	const obey, ask = "dial with credentials of google.golang.org/grpc/credentials/xds", "the Cluster asks for no TLS"
	const said = "the server wants TLS"
	failed := errors.New("the connection failed")
	obeys, ignores := NewPool(true, nil, nil), NewPool(false, nil, nil)
	secured := bundle(t, xdsmsg.UpstreamTLS("", ""), nil)
	for _, tc := range []struct {
		name   string
		pool   *Pool
		bundle *Bundle
		err    error
		said   string
		want   []string // nothing: the error stays as it is
	}{
		{"ignores", ignores, nil, failed, said, []string{said, obey}},
		{"obeys", obeys, nil, failed, said, []string{said, ask}},
		{"obeys, in plaintext", obeys, &Bundle{}, failed, said, []string{said, ask}},
		{"nothing said", obeys, nil, failed, "", nil},
		{"already secured", obeys, secured, failed, said, nil},
		{"no Pool", nil, nil, failed, said, nil},
		{"no error", obeys, nil, nil, "", nil},
	} {
		err := tc.pool.Advise(tc.err, tc.said, tc.bundle)
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
