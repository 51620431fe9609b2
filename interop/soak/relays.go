package soak

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/dynxds/dynxds/internal/loopback"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/relay"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// through says which relay a client has in front of the control plane, by how that relay
// speaks to it.
type through int

const (
	noRelay through = iota
	sotwRelay
	deltaRelay
)

// features are those by which the relay speaks to the control plane.
func (v through) features() []string {
	if v == deltaRelay {
		return []string{constrains, "delta"}
	}
	return []string{constrains}
}

// host is the name of the relay's host.
func (v through) host() string { return fmt.Sprint("relay ", int(v)) }

// relaying is a relay in front of the first control plane, which is killed and started again
// on the same address, without what it had.
type relaying struct {
	t     testing.TB
	addr  *loopback.Address
	cfg   *bootstrap.Config
	creds credentials.TransportCredentials
	// stop ends the present run; nil while the relay is down. Only the goroutine of the
	// run uses it.
	stop func()
}

// startRelay starts the relay of some clients.
func (m *mesh) startRelay(t testing.TB, v through) *relaying {
	addr, err := loopback.Reserve()
	xdstest.NoError(t, err)
	servers := testutils.TopLevel("xds_servers", []any{m.server(v.host(), m.control.Addr(), v == deltaRelay, v.features()...)})
	cfg, err := bootstrap.Parse("relay", testutils.Bootstrap("relay", "", servers, testutils.Authority(string(lanedNames), "", nil)))
	xdstest.NoError(t, err)
	r := &relaying{t: t, addr: addr, cfg: cfg, creds: m.certificates.server()}
	r.start()
	t.Cleanup(func() {
		r.kill()
		addr.Release()
	})
	return r
}

func (r *relaying) start() {
	quick := backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 200 * time.Millisecond}
	relayed, err := relay.New(relay.Options{Bootstrap: r.cfg, Client: []xdsclient.Option{xdsclient.WithBackoff(quick)}})
	xdstest.NoError(r.t, err)
	listener, err := r.addr.Listen()
	xdstest.NoError(r.t, err)
	server := grpc.NewServer(grpc.WaitForHandlers(true), grpc.Creds(r.creds))
	relayed.Register(server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	r.stop = func() {
		server.Stop() // breaks the connections first, as a crash does
		relayed.Close()
		serving.Wait()
	}
}

func (r *relaying) kill() {
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
}

// killRelay kills a relay for a while.
func (d *disruptor) killRelay() bool {
	r := d.relays[[]through{sotwRelay, deltaRelay}[d.IntN(2)]]
	if r.stop == nil {
		return false
	}
	r.kill()
	d.later(r.start)
	return true
}
