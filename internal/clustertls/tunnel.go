package clustertls

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
)

// endpoint is what a handshake needs to know of the endpoint: the host name, for the server name, and, for an endpoint behind an HTTP
// CONNECT proxy (gRFC A86), the "host:port" of the proxy and of the endpoint. Fields that are not needed are empty. An endpoint is an
// attribute of the address that is dialled, so that a policy opens another connection if the proxy changes, and no two endpoints behind
// one proxy share a connection.
type endpoint struct{ hostname, proxy, address string }

type endpointKey struct{}

func endpointIn(a *attributes.Attributes) endpoint {
	e, _ := a.Value(endpointKey{}).(endpoint)
	return e
}

// Dial returns the addresses to dial for addresses of endpoints: that of the proxy for those
// that have one. The Bundle may be nil.
func (b *Bundle) Dial(endpoints []resolver.Address) []resolver.Address {
	if b == nil || !b.key.way.connect {
		return endpoints
	}
	dialled := slices.Clone(endpoints)
	for i := range dialled {
		if e := endpointIn(dialled[i].Attributes); e.proxy != "" {
			dialled[i].Addr = e.proxy
		}
	}
	return dialled
}

// open has the proxy at the other end of conn connect to the endpoint. It does not close conn
// unless ctx ends.
func (e endpoint) open(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err := e.connect(conn)
	if !stop() {
		err = fmt.Errorf("the proxy did not answer in time: %w", context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("HTTP CONNECT through proxy %s to endpoint %s: %w", e.proxy, e.address, err)
	}
	return nil
}

// maxAnswer bounds the status line and headers of a proxy's answer, in bytes.
const maxAnswer = 64 << 10

func (e endpoint) connect(conn net.Conn) error {
	if strings.Contains(e.address, "%") {
		return errors.New("the zone of the endpoint's address means nothing to a proxy")
	}
	request := &http.Request{
		Method: http.MethodConnect, URL: &url.URL{Host: e.address}, Host: e.address,
		Header: http.Header{"User-Agent": {"dynxds"}},
	}
	if err := request.Write(conn); err != nil {
		return err
	}
	limited := &io.LimitedReader{R: conn, N: maxAnswer}
	status, err := readAnswer(limited)
	switch {
	case err != nil && limited.N == 0:
		return fmt.Errorf("the headers of the proxy's answer have more than %d bytes", maxAnswer)
	case errors.Is(err, io.EOF):
		return errors.New("the proxy closed the connection without an answer")
	case err != nil:
		return fmt.Errorf("the answer of the proxy cannot be read: %s", bounds.Text(err.Error(), faults.MaxQuoted))
	case !strings.HasPrefix(status, statusOK):
		return fmt.Errorf("the proxy answered %s", faults.Quote(status))
	}
	return nil
}

const statusOK = "200"

// readAnswer returns the status of the final answer to CONNECT, such as "200 OK". It passes over interim answers
// (RFC 9110, section 15.2), and over headers: an answer that opens a tunnel has no body, whatever Content-Length
// and Transfer-Encoding say (RFC 9110, section 9.3.6), and of another one only the status counts.
func readAnswer(r io.Reader) (status string, err error) {
	for {
		line, err := readLine(r)
		if err != nil {
			return "", err
		}
		version, status, _ := strings.Cut(line, " ")
		code, _, _ := strings.Cut(status, " ")
		if _, _, ok := http.ParseHTTPVersion(version); !ok || len(code) != 3 || strings.Trim(code, "0123456789") != "" {
			return "", fmt.Errorf("%s is no status line of HTTP", faults.Quote(line))
		}
		for header := line; header != ""; {
			if header, err = readLine(r); err != nil {
				return "", err
			}
		}
		if code[0] != '1' || code == "101" {
			return status, nil
		}
	}
}

// readLine reads a line, and nothing of what comes after it: behind the answer are the bytes of the endpoint.
func readLine(r io.Reader) (string, error) {
	var line []byte
	for next := make([]byte, 1); next[0] != '\n'; line = append(line, next[0]) {
		if _, err := io.ReadFull(r, next); err != nil {
			return "", err
		}
	}
	return strings.TrimRight(string(line), "\r\n"), nil
}
