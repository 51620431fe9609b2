package clustertls

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// tunnelling makes a Bundle with HTTP CONNECT, and with TLS inside unless that is nil, of a
// channel with the given credentials.
func tunnelling(t *testing.T, obeys bool, channel credentials.TransportCredentials, inner *xdsresource.Security) *Bundle {
	t.Helper()
	b, release := NewPool(obeys, channel, nil).Acquire("c", &xdsresource.Cluster{HTTPConnect: true, Security: inner})
	t.Cleanup(release)
	return b
}

// through does a handshake with an endpoint over conn, which leads to its proxy.
func through(ctx context.Context, b *Bundle, conn net.Conn, proxy, endpoint string) (net.Conn, credentials.AuthInfo, error) {
	address := b.Address(endpoint, "", proxy)
	return b.clientHandshake(ctx, endpointIn(address.Attributes), "authority", conn)
}

// A86-xds-http-connect.md, "Proposal": CONNECT has "IP address and port of the endpoint", and then
// comes the handshake of "whatever transport socket is actually used", which is the Cluster's
// only on channels that leave security to the control plane.
func TestHandshakeThroughAProxy(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	in := instances{"roots": rootsOf(ca).instance("roots"), "identity": identityOf(ca).instance("identity")}
	mutual := withNames(ca, "a")
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
	ofChannel := credentials.NewTLS(&tls.Config{RootCAs: ca.Pool()})
	for _, tc := range []struct {
		name    string
		obeys   bool
		channel credentials.TransportCredentials
		inner   *xdsresource.Security
		server  *tls.Config
	}{
		{"TLS", true, insecure.NewCredentials(), security(t, xdsmsg.UpstreamTLS("", "roots", "a"), in), withNames(ca, "a")},
		{"mTLS", true, insecure.NewCredentials(), security(t, xdsmsg.UpstreamTLS("identity", "roots", "a"), in), mutual},
		{"the channel's TLS", true, ofChannel, nil, withNames(ca, "authority")},
		{"the channel's TLS, which ignores the Cluster's", false, ofChannel, security(t, xdsmsg.UpstreamTLS("", "roots", "a"), in), withNames(ca, "authority")},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			s, proxy := serve(t, tc.server), xdstest.StartProxy(t)
			b := tunnelling(t, tc.obeys, tc.channel, tc.inner)
			conn, err := net.Dial("tcp", proxy.Addr())
			xdstest.NoError(t, err)
			defer conn.Close()
			secured, info, err := through(t.Context(), b, conn, proxy.Addr(), s.addr)
			xdstest.NoError(t, err)
			echo(t, secured)
			if info.AuthType() != "tls" || b.TransportCredentials().Info().SecurityProtocol != "tls" {
				t.Errorf("connection by %s, credentials of %s, want TLS", info.AuthType(), b.TransportCredentials().Info().SecurityProtocol)
			}
			if _, err := secured.(syscall.Conn).SyscallConn(); err != nil {
				t.Errorf("the connection is not a socket to channelz: %v", err)
			}
			xdstest.Equal(t, "tunnels", map[string]int{s.addr: 1}, proxy.Tunnels())
		})
	}
}

// Without a proxy there is nothing but the handshake.
func TestHandshakeWithoutAProxy(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	b := tunnelling(t, true, credentials.NewTLS(&tls.Config{RootCAs: ca.Pool()}), nil)
	s := serve(t, withNames(ca, "authority"))
	conn, _, err := through(t.Context(), b, s.dial(t), "", s.addr)
	xdstest.NoError(t, err)
	echo(t, conn)
	addresses := []resolver.Address{b.Address("a:1", "", "")}
	xdstest.Equal(t, "dialled", "a:1", b.Dial(addresses)[0].Addr)
	xdstest.Equal(t, "dialled without a Bundle", "a:1", (*Bundle)(nil).Dial(addresses)[0].Addr)
}

// answer is a proxy that reads the request, and then writes an answer and closes, unless the
// client does first.
func answer(t *testing.T, text string) (client net.Conn, request <-chan *http.Request) {
	t.Helper()
	client, server := net.Pipe()
	requests := make(chan *http.Request, 1)
	go func() {
		defer server.Close()
		if r, err := http.ReadRequest(bufio.NewReader(server)); err == nil {
			requests <- r
			io.WriteString(server, text)
		}
	}()
	t.Cleanup(func() { client.Close() })
	return client, requests
}

// What a proxy answers that does not connect. The connection is closed, and never used.
func TestProxiesThatRefuse(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, answer, want string }{
		{"a refusal", "HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno!", `the proxy answered "403 Forbidden"`},
		{"a password is wanted", "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n", `"407 Proxy Authentication Required"`},
		{"success of another kind", "HTTP/1.1 204 No Content\r\n\r\n", `"204 No Content"`},
		{"another protocol", "HTTP/1.1 101 Switching Protocols\r\n\r\n", `"101 Switching Protocols"`},
		{"a refusal after an interim answer", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 502 Bad Gateway\r\n\r\n", `the proxy answered "502 Bad Gateway"`},
		{"interim answers without end", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", maxAnswer/10), "more than 65536 bytes"},
		{"only an interim answer", "HTTP/1.1 100 Continue\r\n\r\n", "the proxy closed the connection without an answer"},
		{"a status that begins like success", "HTTP/1.1 2000 OK\r\n\r\n", "cannot be read"},
		{"closed", "", "the proxy closed the connection without an answer"},
		{"closed in the middle", "HTTP/1.1 200 OK\r\nX:", "the proxy closed the connection without an answer"},
		{"garbage", "SSH-2.0-x\r\n\r\n", "cannot be read"},
		{"much garbage", strings.Repeat("x", 1000) + "\r\n\r\n", "cannot be read"},
		{"no end of headers", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", maxAnswer), "more than 65536 bytes"},
		{"no end of a line", strings.Repeat("x", 2*maxAnswer), "more than 65536 bytes"},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			b := tunnelling(t, true, insecure.NewCredentials(), nil)
			client, _ := answer(t, tc.answer)
			_, _, err := through(t.Context(), b, client, "10.9.9.1:3128", "10.0.0.1:80")
			if err == nil {
				t.Fatal("the handshake succeeded")
			}
			for _, part := range []string{`cluster "c"`, "proxy 10.9.9.1:3128", "endpoint 10.0.0.1:80", tc.want} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q, want it to contain %q", err, part)
				}
			}
			if len(err.Error()) > 500 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if _, err := client.Write([]byte("x")); err == nil {
				t.Error("the connection is open")
			}
		})
	}
}

// A connection that breaks before the proxy has the request fails with its own error.
func TestProxyThatIsGone(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	server.Close()
	_, _, err := through(t.Context(), tunnelling(t, true, insecure.NewCredentials(), nil), client, "10.9.9.1:3128", "10.0.0.1:80")
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("error %v, want that of the closed pipe", err)
	}
}

// A proxy that never answers does not hold up a connection for longer than its deadline.
func TestProxyThatNeverAnswers(t *testing.T) {
	t.Parallel()
	for _, reads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := tunnelling(t, true, insecure.NewCredentials(), nil)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			client, server := net.Pipe()
			defer server.Close()
			if reads {
				go io.Copy(io.Discard, server)
			}
			start := time.Now()
			_, _, err := through(ctx, b, client, "10.9.9.1:3128", "10.0.0.1:80")
			if err == nil || !strings.Contains(err.Error(), "the proxy did not answer in time: context deadline exceeded") {
				t.Errorf("error %v", err)
			}
			xdstest.Equal(t, "failed after", 20*time.Second, time.Since(start))
		})
	}
}

// The request, byte by byte what proxies expect; and what the endpoint sends at once is not lost.
func TestConnectRequestAndEarlyBytes(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]string{
		"10.0.0.1:80": "10.0.0.1:80", "[2001:db8::1]:80": "[2001:db8::1]:80", "backend.example.com:443": "backend.example.com:443",
		"[fe80::1%\r\nX: y]:80": "", // refused
	} {
		b := tunnelling(t, true, insecure.NewCredentials(), nil)
		client, requests := answer(t, "HTTP/1.1 200 Connection established\r\nContent-Length: 2\r\n\r\nearly")
		conn, _, err := through(t.Context(), b, client, "10.9.9.1:3128", endpoint)
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "zone") {
				t.Errorf("endpoint %q: error %v, want one that mentions the zone", endpoint, err)
			}
			continue
		}
		xdstest.NoError(t, err)
		r := <-requests
		if r.Method != "CONNECT" || r.RequestURI != want || r.Host != want || r.Proto != "HTTP/1.1" {
			t.Errorf("request %s %s %s for host %s", r.Method, r.RequestURI, r.Proto, r.Host)
		}
		got := make([]byte, 5)
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "early" {
			t.Errorf("%q and error %v, want the bytes that came with the answer", got, err)
		}
	}
}

// What a proxy may say beside that it has connected.
func TestAnswersThatOpenATunnel(t *testing.T) {
	t.Parallel()
	const interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
	for name, text := range map[string]string{
		"plain":                      "HTTP/1.1 200 OK\r\n\r\n",
		"without a reason":           "HTTP/1.0 200\r\n\r\n",
		"after interim answers":      interim + "HTTP/1.1 200 OK\r\n\r\n",
		"chunked":                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"an unknown encoding":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity, mine\r\n\r\n",
		"lengths":                    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
		"a length that is no number": "HTTP/1.1 200 OK\r\nContent-Length: -\r\n\r\n",
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			b := tunnelling(t, true, insecure.NewCredentials(), nil)
			client, _ := answer(t, text+"early")
			conn, _, err := through(t.Context(), b, client, "10.9.9.1:3128", "10.0.0.1:80")
			xdstest.NoError(t, err)
			got := make([]byte, 5)
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != "early" {
				t.Errorf("%q and error %v, want the bytes after the answer", got, err)
			}
		})
	}
}
