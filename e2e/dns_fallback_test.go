package e2e_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcdns "google.golang.org/grpc/resolver/dns"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/dnsserver"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// zone is the DNS of the process. Names that are not in it do not exist.
var zone *dnsserver.Server

// underZone runs the tests with zone as the system's DNS.
type underZone struct{ tests goleak.TestingM }

func (m underZone) Run() int {
	// Look-ups are not rate-limited.
	grpcdns.SetMinResolutionInterval(10 * time.Millisecond)
	var err error
	if zone, err = dnsserver.New(); err != nil {
		panic(err)
	}
	defer zone.Close()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, zone.Addr())
	}}
	return m.tests.Run()
}

// inZone gives the test a name of its own that leads to a backend, and returns
// the target with the backend's port.
func inZone(t *testing.T, backend *testutils.Backend, addresses ...string) (name, target string) {
	t.Helper()
	name = strings.ToLower(strings.ReplaceAll(t.Name(), "/", ".")) + ".test"
	zone.SetA(name, append(addresses, "127.0.0.1")...)
	_, port, err := net.SplitHostPort(backend.Addr())
	xdstest.NoError(t, err)
	return name, name + ":" + port
}

// publish gives a name a service config.
func publish(name, list string) {
	zone.SetTXT("_grpc_config."+name, dnsserver.Strings("grpc_config="+list, 255))
}

// failFirst makes a backend fail the first attempt of every RPC in a way that
// may be retried: with a status, and no header before it.
func failFirst() grpc.ServerOption {
	return grpc.InTapHandle(func(ctx context.Context, rpc *tap.Info) (context.Context, error) {
		if len(rpc.Header.Get("grpc-previous-rpc-attempts")) == 0 {
			return nil, status.Error(codes.Unavailable, "try again")
		}
		return ctx, nil
	})
}

const retryAndRoundRobin = `{"loadBalancingConfig":[{"round_robin":{}}],"methodConfig":[{"name":[{}],"retryPolicy":
	{"maxAttempts":5,"initialBackoff":"0.001s","maxBackoff":"0.001s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`

// noBootstrap clears the environment variables that name a bootstrap.
func noBootstrap(t *testing.T) {
	t.Setenv("GRPC_XDS_BOOTSTRAP", "")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "")
}

func statusOf(t *testing.T, target string) dynxds.ChannelStatus {
	t.Helper()
	all := dynxds.Channels()
	slices.Reverse(all)
	for _, c := range all {
		if c.Target == target {
			return c
		}
	}
	t.Fatalf("dynxds.Channels does not have %s", target)
	return dynxds.ChannelStatus{}
}

func TestWithoutABootstrapDNSResolves(t *testing.T) {
	noBootstrap(t)
	for _, way := range []struct {
		name string
		opts []grpc.DialOption
	}{{"blank import", nil}, {"DialOptions", dynxds.DialOptions()}} {
		t.Run(way.name, func(t *testing.T) {
			backend := testutils.StartBackend(t, "b1", failFirst())
			name, target := inZone(t, backend)
			void := `{"serviceConfig":{"loadBalancingConfig":[{"dynxds_experimental":{}}]}}`
			publish(name, `[{"clientLanguage":["java"],"serviceConfig":{}},`+void+`,{"serviceConfig":`+retryAndRoundRobin+`}]`)
			cc := dial(t, "xds:///"+target, way.opts...)
			mustReachByEachKind(t, cc, backend)
			got := statusOf(t, "xds:///"+target)
			if got.Mode != dynxds.ModeDNS || !strings.Contains(got.Reason, "GRPC_XDS_BOOTSTRAP") {
				t.Errorf("mode %v, %q", got.Mode, got.Reason)
			}
			if got.DNS == nil || got.DNS.Choice == nil || got.DNS.Choice.Index != 2 {
				t.Errorf("look-up %+v", got.DNS)
			}
			// A lost connection has DNS asked again, at the interval that underZone has set, not after 30 s.
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			before := zone.Queries("_grpc_config."+name, dns.TypeTXT, "")
			backend.Stop()
			zone.Wait(ctx, t, "_grpc_config."+name, dns.TypeTXT, before+1)
		})
	}
}

// A channel that starts while the control plane is down uses DNS. It moves to xDS when the
// control plane is up and has the Listener, and does not return to DNS.
func TestFromDNSToXDS(t *testing.T) {
	everyWay(t)
	directly(t, "the management server of the client is the relay, which stays reachable")
	overLinks(t, func(t *testing.T) {
		m := newMesh(t, failOnDataErrors)
		m.Stop()
		one, two := testutils.StartBackend(t, "dns-1", failFirst()), testutils.StartBackend(t, "dns-2")
		mesh := testutils.StartBackend(t, "mesh")
		forwardFrom2(t, one, two)
		name, target := inZone(t, one, "127.0.0.2")
		publish(name, `[{"serviceConfig":`+retryAndRoundRobin+`}]`)

		cc := dialWith(t, "xds:///"+target, m.bootstrap(dnsFallback("unavailable")))
		load := loadOn(t, cc, one, two)
		if got := statusOf(t, "xds:///"+target); got.Mode != dynxds.ModeDNS || !strings.Contains(got.Reason, m.Addr()) {
			t.Errorf("without a control plane: mode %v, %q", got.Mode, got.Reason)
		}

		m.serve(target, "cluster", mesh)
		m.restart()
		load.await(t, mesh)
		load.Stop(t)
		if got := statusOf(t, "xds:///"+target); got.Mode != dynxds.ModeXDS {
			t.Errorf("with the control plane: mode %v, %q", got.Mode, got.Reason)
		}

		before := one.Count() + two.Count()
		m.Delete(t, xdsmsg.ListenerType, target)
		untilFailed(t, cc, "Listener", m.Addr())
		m.Stop()
		mustFail(t, cc)
		if n := one.Count() + two.Count() - before; n > 0 {
			t.Errorf("%d RPCs went by DNS again", n)
		}
		// DNS is not queried either.
		queries := zone.Queries(name, dns.TypeA, "")
		mustFail(t, cc)
		if n := zone.Queries(name, dns.TypeA, "") - queries; n > 0 {
			t.Errorf("%d queries", n)
		}
	})
}

func dnsFallback(policy any) testutils.BootstrapOption {
	return testutils.TopLevel("dns_fallback", policy)
}

// Addresses from DNS are reached through the proxy. The address belongs to no host
// (RFC 5737), so that only the proxy can lead to the backend.
func TestDNSUnderHTTPSProxy(t *testing.T) {
	t.Parallel()
	backend := testutils.StartBackend(t, "b1")
	var asked atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Method + " " + r.Host)
		tunnel(w, backend.Addr())
	}))
	defer proxy.Close()
	callInChild(t, backend, "xds:///192.0.2.1:443", proxy.URL, "")
	xdstest.Equal(t, "what the proxy got", "CONNECT 192.0.2.1:443", asked.Load())
}

// tunnel joins the connection of a CONNECT request to addr.
func tunnel(w http.ResponseWriter, addr string) {
	to, err := net.Dial("tcp", addr)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer to.Close()
	from, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer from.Close()
	_, _ = from.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
	var back sync.WaitGroup
	defer back.Wait()
	back.Go(func() {
		_, _ = io.Copy(from, to)
		from.Close()
	})
	_, _ = io.Copy(to, from)
	to.Close()
}
