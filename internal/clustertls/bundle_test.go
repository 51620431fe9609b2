package clustertls

import (
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// Bundles and providers live as long as they are held, and equal ones are shared.
func TestBundlesAreShared(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	p := rootsOf(ca)
	in := instances{"roots": p.instance("roots"), "other": p.instance("other")}
	pool := NewPool(true, nil, nil)
	one, releaseOne := pool.Acquire("c", &xdsresource.Cluster{Security: security(t, xdsmsg.UpstreamTLS("", "roots"), in)})
	same, releaseSame := pool.Acquire("c", &xdsresource.Cluster{Security: security(t, xdsmsg.UpstreamTLS("", "roots"), in)})
	other, releaseOther := pool.Acquire("c", &xdsresource.Cluster{Security: security(t, xdsmsg.UpstreamTLS("", "roots", "san"), in)})
	elsewhere, releaseElsewhere := pool.Acquire("d", &xdsresource.Cluster{Security: security(t, xdsmsg.UpstreamTLS("", "roots"), in)})
	if one != same || one == other || one == elsewhere {
		t.Errorf("%p and %p for the same, %p and %p for others", one, same, other, elsewhere)
	}
	held := one.Hold()
	for _, release := range []func(){releaseOne, releaseSame, releaseOther, releaseElsewhere} {
		release()
	}
	if n := p.closed.Load(); n != 0 {
		t.Fatalf("the provider is closed %d times while a Bundle is held", n)
	}
	if _, err := serve(t, withNames(ca, "a")).handshake(t, one); err != nil {
		t.Error(err)
	}
	held()
	p.Await(t, "the provider to be closed once", func() bool { return p.closed.Load() == 1 })
	// Its handshakes fail from now on.
	_, err := serve(t, withNames(ca, "a")).handshake(t, one)
	check(t, err, `"roots"`)
}

// What is open when a Bundle is released for the last time stays, unless the Bundle is outdated.
func TestConnectionsOfAnOutdatedBundleEnd(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	in := instances{"roots": rootsOf(ca).instance("roots")}
	secure := &xdsresource.Cluster{Security: security(t, xdsmsg.UpstreamTLS("", "roots"), in)}
	for name, c := range map[string]*xdsresource.Cluster{"TLS": secure, "plaintext": {}} {
		config := withNames(ca, "a")
		if c.Security == nil {
			config = plaintext
		}
		s := serve(t, config)
		pool := NewPool(true, insecure.NewCredentials(), nil)
		// connect returns a connection of a Bundle that a SubConn holds.
		connect := func(t *testing.T) (b *Bundle, conn net.Conn, release, held func()) {
			b, release = pool.Acquire("c", c)
			held = b.Hold()
			conn, _, err := b.TransportCredentials().ClientHandshake(t.Context(), "", s.dial(t))
			xdstest.NoError(t, err)
			echo(t, conn)
			return b, conn, release, held
		}
		t.Run(name+" outdated", func(t *testing.T) {
			b, conn, release, held := connect(t)
			b.Outdate()
			release()
			echo(t, conn)
			read := make(chan error)
			go func() {
				_, err := conn.Read(make([]byte, 1))
				read <- err
			}()
			held()
			if err := <-read; err == nil || !strings.Contains(err.Error(), `cluster "c" asks for stricter security than this connection has`) {
				t.Errorf("a read fails with %v", err)
			}
			conn.Close()
			// A handshake that was under way.
			_, _, err := b.TransportCredentials().ClientHandshake(t.Context(), "", s.dial(t))
			if err == nil {
				t.Error("a handshake succeeds afterwards")
			}
		})
		t.Run(name+" in use again", func(t *testing.T) {
			b, conn, release, held := connect(t)
			b.Outdate()
			release()
			_, again := pool.Acquire("c", c)
			held()
			again()
			echo(t, conn)
			conn.Close()
		})
		t.Run(name+" not outdated", func(t *testing.T) {
			_, conn, release, held := connect(t)
			release()
			held()
			echo(t, conn)
			conn.Close()
		})
	}
}
