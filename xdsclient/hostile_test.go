package xdsclient

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/bounds"
)

// Resources that nobody asked for are dropped, whatever their number.
func TestFloodOfUnaskedResources(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		s := server.asked()
		const flood = 20_000
		var resources []proto.Message
		for i := range flood {
			resources = append(resources, wrap(t, fmt.Sprint("u", i), cluster("u", "")))
		}
		s.send(types.clusters, "1", "n1", append(resources, cluster("a", "1"))...)
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, version: "1", nonce: "n1"})
		a.cluster("1")
		if got := c.Stats(); got.Unasked != flood || got.Decoded != 1 {
			t.Errorf("%d resources were dropped and %d decoded, want %d and 1", got.Unasked, got.Decoded, flood)
		}
	})
}

// A NACK lists the faults up to a bound, and says how many there are.
func TestNACKIsBounded(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		listen(t, c, types.clusters, "a")
		s := server.asked()
		var resources []proto.Message
		for range 1000 {
			resources = append(resources, badCluster("", strings.Repeat("x", 1000)))
		}
		s.send(types.clusters, "1", "n1", resources...)
		text := s.request().GetErrorDetail().GetMessage()
		if len(text) > bounds.NACKText+1000 {
			t.Errorf("the NACK has %d bytes", len(text))
		}
		if !strings.HasPrefix(text, "1000 of 1000 Cluster resources are invalid; resources[0]: ") || !strings.Contains(text, " more") {
			t.Errorf("the NACK is %.100s … %s", text, text[len(text)-100:])
		}
	})
}

// stallingConn lets only so many bytes through to its reader until it is closed.
type stallingConn struct {
	net.Conn
	left   int
	closed chan struct{}
	once   sync.Once
}

func (c *stallingConn) Read(b []byte) (int, error) {
	if c.left == 0 {
		<-c.closed
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

func (c *stallingConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A server that stalls half-way through a message: what it was asked for does not
// come in time, which the watchers hear; and when the connection is gone, all
// comes again.
func TestStallHalfWayThroughAMessage(t *testing.T) {
	overEachProtocol(t, nil, func(v *protocolTest) {
		const size = 100_000
		conns := make(chan *stallingConn, 10)
		v.server.wire = func(conn net.Conn) net.Conn {
			c := &stallingConn{Conn: conn, left: size / 2, closed: make(chan struct{})}
			conns <- c
			return c
		}
		cached, a := v.listen("cached"), v.listen("a")
		s := v.connect()
		s.say(v.types.clusters, "1", clusters(cluster("cached", "x")))
		cached.cluster("x")
		long := strings.Repeat("x", size)
		s.say(v.types.clusters, "2", clusters(cluster("cached", "x"), cluster("a", long)))
		pass(14 * time.Second)
		a.silent()
		if v.delta {
			a.fault(KindTimeout)
		} else {
			a.fault(KindDoesNotExist)
		}
		fresh := v.listen("fresh")
		pass(16 * time.Second)
		if h := fresh.next(); h.err == nil {
			t.Errorf("got %v from a server that stalls", h)
		}
		cached.silent()

		v.server.mu.Lock()
		v.server.wire = nil
		v.server.mu.Unlock()
		(<-conns).Close()
		v.connect().say(v.types.clusters, "3", clusters(cluster("cached", "x"), cluster("a", long), cluster("fresh", "x")))
		a.cluster(long)
		fresh.cluster("x")
		cached.silent()
	})
}
