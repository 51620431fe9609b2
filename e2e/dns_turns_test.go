package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/dnsserver"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/testutils"
)

// A cluster with a thousand names that DNS does not answer delays neither the look-up of another cluster's
// name, nor routes that change for other RPCs. (At a hundred look-ups at a time, the names take 100 s.)
func TestADeadClusterDelaysNoOther(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	backend, other := testutils.StartBackend(t, "b"), testutils.StartBackend(t, "other")
	_, target := inZone(t, backend)

	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	silent := func(w dns.ResponseWriter, query *dns.Msg) {
		<-end
		dnsserver.Code(dns.RcodeServerFailure)(w, query)
	}
	begun := make(chan string, 10_000)
	dead := make([]string, 1000)
	for i := range dead {
		name := fmt.Sprintf("dead%d.%s.test", i, strings.ToLower(t.Name()))
		dead[i] = name + ":80"
		zone.Fault(name, func(w dns.ResponseWriter, query *dns.Msg) {
			begun <- name
			silent(w, query)
		})
	}
	resources := []any{
		xdsmsg.InlineCluster("dead", strictDNS, xdsmsg.In("z", dead...)),
		xdsmsg.InlineCluster("c", logicalDNS, xdsmsg.In("z", target)), clusterOf("eds", other),
	}
	m.set(append(resources, chain(service, toCluster("dead")))...)
	cc := m.dial("xds:///" + service)
	cc.Connect()
	ctx := testutils.Context(t)
	for names := map[string]bool{}; len(names) < bounds.Lookups; {
		select {
		case name := <-begun:
			names[name] = true
		case <-ctx.Done():
			t.Fatalf("only %d look-ups began", len(names))
		}
	}

	m.set(append(resources, chain(service, xdsmsg.PathRoute(unaryMethod, "c"), toCluster("dead")))...)
	untilReachedSoon(t, cc, backend)
	m.set(append(resources, chain(service, xdsmsg.PathRoute(unaryMethod, "eds"), toCluster("dead")))...)
	untilReachedSoon(t, cc, other)
}

// untilReachedSoon makes RPCs, each of which waits for a moment only, until one reaches the backend. An
// RPC that waits for a cluster goes on waiting for it when the routes change.
func untilReachedSoon(t *testing.T, cc *grpc.ClientConn, backend *testutils.Backend) {
	t.Helper()
	ctx := testutils.Context(t)
	for ctx.Err() == nil {
		short, cancel := context.WithTimeout(ctx, time.Second)
		id, err := call(short, cc, unary)
		cancel()
		if err == nil && id == backend.ID() {
			return
		}
	}
	t.Fatalf("no RPC reached %s", backend.ID())
}
