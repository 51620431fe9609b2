package clustertls

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
)

// The advice that Advise adds to errors. Who can act depends on who decides on the security of the connection.
const (
	adviceObey = "dial with credentials of google.golang.org/grpc/credentials/xds, and have the control plane ask for TLS"
	adviceAsk  = "the Cluster asks for no TLS: have the control plane ask for it (with Istio, by a DestinationRule with tls.mode ISTIO_MUTUAL), " +
		"or dial with fallback credentials that the server accepts"
)

// Advise returns the error of a connection with advice, if the server probably wants TLS, or a certificate, of a
// client that does not offer it. bundle is that of the connection; nil: the channel's own credentials. Both p and
// bundle may be nil. Other errors, and nil, are returned as they are.
//
// A server with TLS closes a connection in plaintext without a word, and gRPC's error is then
// "error reading server preface: EOF".
func (p *Pool) Advise(err error, bundle *Bundle) error {
	if err == nil || p == nil || bundle != nil && bundle.security != nil {
		return err
	}
	text, advice := err.Error(), adviceObey
	if p.obeys {
		advice = adviceAsk
	}
	switch {
	case strings.Contains(text, "tls: certificate required"):
		return fmt.Errorf("%w; the server wants a certificate of the client (mTLS): %s", err, advice)
	case strings.Contains(text, "server preface") && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return fmt.Errorf("%w; the server ended the connection before it spoke HTTP/2, as one does that wants TLS or mTLS: %s", err, advice)
	}
	return err
}
