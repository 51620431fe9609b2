package clustertls

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
)

// tunnel is the way to an endpoint through an HTTP CONNECT proxy (gRFC A86). Both addresses
// are "host:port". It is an attribute of the endpoint's address, so that a policy opens another
// connection if the proxy changes, and no two endpoints share one.
type tunnel struct{ proxy, endpoint string }

type tunnelKey struct{}

// tunnelOf returns the zero tunnel for an address without a proxy.
func tunnelOf(a *attributes.Attributes) tunnel {
	t, _ := a.Value(tunnelKey{}).(tunnel)
	return t
}

// Dial returns the addresses to dial for addresses of endpoints: that of the proxy for those
// that have one. The Bundle may be nil.
func (b *Bundle) Dial(endpoints []resolver.Address) []resolver.Address {
	if b == nil || !b.key.way.connect {
		return endpoints
	}
	dialled := slices.Clone(endpoints)
	for i := range dialled {
		if t := tunnelOf(dialled[i].Attributes); t != (tunnel{}) {
			dialled[i].Addr = t.proxy
		}
	}
	return dialled
}

// open has the proxy at the other end of conn connect to the endpoint. It does not close conn
// unless ctx ends.
func (t tunnel) open(ctx context.Context, conn net.Conn) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	tunnelled, err := t.connect(conn)
	if !stop() {
		err = fmt.Errorf("the proxy did not answer in time: %w", context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("HTTP CONNECT through proxy %s to endpoint %s: %w", t.proxy, t.endpoint, err)
	}
	return tunnelled, nil
}

// maxAnswer bounds the status line and headers of a proxy's answer, in bytes.
const maxAnswer = 64 << 10

func (t tunnel) connect(conn net.Conn) (net.Conn, error) {
	if strings.Contains(t.endpoint, "%") {
		return nil, errors.New("the zone of the endpoint's address means nothing to a proxy")
	}
	request := &http.Request{
		Method: http.MethodConnect, URL: &url.URL{Host: t.endpoint}, Host: t.endpoint,
		Header: http.Header{"User-Agent": {"dynxds"}},
	}
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	limited := &io.LimitedReader{R: conn, N: maxAnswer}
	r := bufio.NewReader(limited)
	status, err := readAnswer(r)
	switch {
	case err != nil && limited.N == 0:
		return nil, fmt.Errorf("the headers of the proxy's answer have more than %d bytes", maxAnswer)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("the proxy closed the connection without an answer")
	case err != nil:
		return nil, fmt.Errorf("the answer of the proxy cannot be read: %s", bounds.Text(err.Error(), faults.MaxQuoted))
	case !strings.HasPrefix(status, statusOK):
		return nil, fmt.Errorf("the proxy answered %s", faults.Quote(status))
	}
	if r.Buffered() == 0 {
		return conn, nil
	}
	early, _ := r.Peek(r.Buffered())
	return &earlyConn{conn, io.MultiReader(bytes.NewReader(early), conn)}, nil
}

const statusOK = "200"

// readAnswer returns the status of the final answer to CONNECT, such as "200 OK". It passes over interim answers
// (RFC 9110, section 15.2), and over headers: an answer that opens a tunnel has no body, whatever Content-Length
// and Transfer-Encoding say (RFC 9110, section 9.3.6), and of another one only the status counts.
func readAnswer(r *bufio.Reader) (status string, err error) {
	text := textproto.NewReader(r)
	for {
		line, err := text.ReadLine()
		if err != nil {
			return "", err
		}
		version, status, _ := strings.Cut(line, " ")
		code, _, _ := strings.Cut(status, " ")
		if _, _, ok := http.ParseHTTPVersion(version); !ok || len(code) != 3 || strings.Trim(code, "0123456789") != "" {
			return "", fmt.Errorf("%s is no status line of HTTP", faults.Quote(line))
		}
		if _, err := text.ReadMIMEHeader(); err != nil {
			return "", err
		}
		if code[0] != '1' || code == "101" {
			return status, nil
		}
	}
}

// earlyConn is a connection whose first bytes came together with the answer of the proxy.
type earlyConn struct {
	net.Conn
	r io.Reader
}

// Read implements net.Conn.
func (c *earlyConn) Read(b []byte) (int, error) { return c.r.Read(b) }
