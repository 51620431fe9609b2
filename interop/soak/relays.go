package soak

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

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

// relaying are all relays.
var relaying = []through{sotwRelay, deltaRelay}

// features are those by which the relay speaks to the control plane.
func (v through) features() []string {
	if v == deltaRelay {
		return []string{constrains, "delta"}
	}
	return []string{constrains}
}

// host is the name of the relay's host.
func (v through) host() string { return fmt.Sprint("relay-", int(v)) }

// quick is the backoff of connections to backends, and of relays.
var quick = backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 200 * time.Millisecond}

// startRelay starts the relay of some clients. It restarts without what it had.
func (m *mesh) startRelay(t testing.TB, v through) *loopback.Server {
	servers := testutils.TopLevel("xds_servers", []any{m.server(v.host(), m.control.Addr(), v == deltaRelay, v.features()...)})
	cfg, err := bootstrap.Parse("relay", testutils.Bootstrap("relay", "", servers, testutils.Authority(string(lanedNames), "", nil)))
	xdstest.NoError(t, err)
	server, err := loopback.StartServer(func() loopback.Run {
		relayed, err := relay.New(relay.Options{Bootstrap: cfg, Client: xdsclient.Options{Backoff: quick}})
		xdstest.NoError(t, err)
		server := grpc.NewServer(grpc.WaitForHandlers(true), grpc.Creds(m.certificates.server()))
		relayed.Register(server)
		return loopback.Run{GRPC: server, EndStreams: relayed.Close}
	}, nil)
	xdstest.NoError(t, err)
	t.Cleanup(server.Close)
	return server
}
