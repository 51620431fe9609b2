package clustertls

import (
	"crypto/tls"
	"fmt"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/peercert"
)

// connection is a connection after the handshake, as gRPC has it.
type connection struct {
	peercert.Conn
	bundle *Bundle
	// sent is the client's certificate; nil: the server did not ask for it, or there is none.
	sent  *tls.Certificate
	leave func() bool // leaves the connections that end with the Bundle
}

// explain adds to an error why it occurs; see peercert.Conn.
func (c *connection) explain(err error, accepted bool) error {
	switch {
	case c.bundle.ended.Err() != nil:
		return fmt.Errorf("cluster %s asks for stricter security than this connection has, which ends with its streams: %w",
			faults.Quote(c.bundle.key.cluster), err)
	case c.bundle.security == nil || accepted:
		return err
	}
	has := "has no certificate"
	if identity := c.bundle.identity; identity != nil {
		identity.doubt()
		has = "has the certificate of " + identity.String() + identity.invalid(c.sent)
	}
	return fmt.Errorf("TLS of cluster %s: the connection ended right after the handshake; the server may have refused the client, which %s: %w",
		faults.Quote(c.bundle.key.cluster), has, err)
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.leave()
	return c.Conn.Close()
}
