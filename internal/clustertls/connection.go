package clustertls

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/peercert"
)

// connection is a connection after the handshake, as gRPC has it.
type connection struct {
	peercert.Conn
	raw    net.Conn // what the handshake was on
	bundle *Bundle
	// sent is the client's certificate; nil: the server did not ask for it, or there is none.
	sent  *tls.Certificate
	ended atomic.Bool // by end
}

// explain adds to an error why it occurs; see peercert.Conn.
func (c *connection) explain(err error, accepted bool) error {
	switch {
	case c.ended.Load():
		return fmt.Errorf("cluster %s asks for stricter security than this connection has, which ends with its streams: %w",
			faults.Quote(c.bundle.key.cluster), err)
	case c.bundle.security == nil || accepted:
		return err
	}
	has := "has no certificate"
	if identity := c.bundle.identity; identity != nil {
		identity.doubt()
		has = "has the certificate of " + identity.String() + c.bundle.invalid(c.sent)
	}
	return fmt.Errorf("TLS of cluster %s: the connection ended right after the handshake; the server may have refused the client, which %s: %w",
		faults.Quote(c.bundle.key.cluster), has, err)
}

// invalid returns a clause on the client's certificate, or "" if nothing is wrong with it.
func (b *Bundle) invalid(sent *tls.Certificate) string {
	if sent == nil {
		return ""
	}
	if why := b.identity.invalid(sent); why != "" {
		return ", which " + why
	}
	return ""
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.bundle.open.remove(c)
	return c.Conn.Close()
}

// end fails reads and writes at once, also those under way. gRPC then calls Close.
func (c *connection) end() {
	c.ended.Store(true)
	c.raw.Close()
}

// connections are those of a Bundle that are open. gRPC leaves a connection open as long as it has
// streams, which may be for ever, although the SubConn has been shut down.
type connections struct {
	mu       sync.Mutex
	all      map[*connection]struct{}
	outdated bool // they end with the Bundle
	closed   bool
}

var errOutdated = errors.New("the Cluster asks for stricter security by now")

// add takes over a connection, or reports why that may not be used any more.
func (s *connections) add(c *connection) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && s.outdated {
		return errOutdated
	}
	if s.all == nil {
		s.all = make(map[*connection]struct{})
	}
	s.all[c] = struct{}{}
	return nil
}

func (s *connections) remove(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
}

func (s *connections) setOutdated(outdated bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outdated = outdated
}

// close is called when no SubConn has the Bundle any more. What is open then are connections with
// streams. They end if they are outdated.
func (s *connections) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if !s.outdated {
		return
	}
	for c := range s.all {
		c.end()
	}
}
