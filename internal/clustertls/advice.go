package clustertls

import "fmt"

// The advice that Advise adds to errors. Who can act depends on who decides on the security of the connection.
const (
	adviceObey = "dial with credentials of google.golang.org/grpc/credentials/xds, and have the control plane ask for TLS"
	adviceAsk  = "the Cluster asks for no TLS: have the control plane ask for it (with Istio, by a DestinationRule with tls.mode ISTIO_MUTUAL), " +
		"or dial with fallback credentials that the server accepts"
)

// Advise adds to the error of a connection what the error says of the server (said, made by package tlsadvice; "" for nothing), and
// advice. bundle has the credentials of the connection; nil: the channel's own. The Pool may be nil. Errors of connections
// that the Cluster has secured are returned unchanged.
func (p *Pool) Advise(err error, said string, bundle *Bundle) error {
	if said == "" || p == nil || bundle != nil && bundle.security != nil {
		return err
	}
	advice := adviceObey
	if p.obeys {
		advice = adviceAsk
	}
	return fmt.Errorf("%w; %s: %s", err, said, advice)
}
