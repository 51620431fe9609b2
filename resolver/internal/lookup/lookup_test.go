package lookup_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"go.uber.org/goleak"
	grpcresolver "google.golang.org/grpc/resolver"
	grpcdns "google.golang.org/grpc/resolver/dns"

	"github.com/dynxds/dynxds/internal/dnsserver"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/resolver/internal/lookup"
	"github.com/dynxds/dynxds/testutils"
)

// zone is the DNS of the process.
var zone *dnsserver.Server

func TestMain(m *testing.M) { goleak.VerifyTestMain(underZone{m}) }

type underZone struct{ m *testing.M }

func (u underZone) Run() int {
	grpcresolver.Register(fakes)
	grpcdns.SetMinResolutionInterval(0)
	var err error
	if zone, err = dnsserver.New(); err != nil {
		panic(err)
	}
	defer zone.Close()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, zone.Addr())
	}}
	return u.m.Run()
}

// watched is a Watch and its results.
type watched struct {
	*lookup.Watch
	results chan lookup.Result
}

// start starts a Watch of a name.
func start(t *testing.T, name string) watched {
	t.Helper()
	w := watched{results: make(chan lookup.Result, 100)}
	var known lookup.Result
	w.Watch, known = lookup.Start(name, t.Name(), func(r lookup.Result) { w.results <- r })
	t.Cleanup(w.Stop)
	if known.Answered() {
		w.results <- known
	}
	return w
}

func (w watched) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	got := w.next(t)
	slices.Sort(got.Addresses)
	if got.Err != nil || !slices.Equal(got.Addresses, want) {
		t.Errorf("%s: addresses %v, error %v; want %v", when, got.Addresses, got.Err, want)
	}
}

func (w watched) next(t *testing.T) lookup.Result {
	t.Helper()
	select {
	case r := <-w.results:
		return r
	case <-testutils.Context(t).Done():
		t.Fatal("no result came")
		return lookup.Result{}
	}
}

// nameOf returns a name of the test's own.
func nameOf(t *testing.T) string {
	return strings.ToLower(strings.NewReplacer("/", ".", "_", "-").Replace(t.Name())) + ".test"
}

func TestAddressesOfAName(t *testing.T) {
	t.Parallel()
	name := nameOf(t)
	zone.SetA(name, "10.0.0.1", "10.0.0.2", "2001:db8::1")
	w := start(t, name+":80")
	w.expect(t, "at first", "10.0.0.1:80", "10.0.0.2:80", "[2001:db8::1]:80")
	t.Run("are looked up again on demand", func(t *testing.T) {
		zone.SetA(name, "10.0.0.3", "2001:db8::1")
		w.ResolveNow()
		w.expect(t, "after ResolveNow", "10.0.0.3:80", "[2001:db8::1]:80")
	})
}

// The service config of a cluster does not come from DNS (gRFC A37,
// "xds_cluster_resolver_experimental LB Policy").
func TestNoServiceConfigIsLookedUp(t *testing.T) {
	t.Parallel()
	name := nameOf(t)
	zone.SetA(name, "10.0.0.1")
	start(t, name+":80").expect(t, "at first", "10.0.0.1:80")
	if n := zone.Queries("_grpc_config."+name, dns.TypeTXT, ""); n > 0 {
		t.Errorf("%d queries for a service config", n)
	}
}

// Which answers mean that a name has lost its addresses: those that say so, for both families of
// addresses. Failures do not, also if Go's resolver, and with it gRPC's, makes an empty answer of them.
func TestAnswersThatTakeAddressesAway(t *testing.T) {
	t.Parallel()
	onlyFor := func(qtype uint16, fault dnsserver.Handler) dnsserver.Handler {
		return func(w dns.ResponseWriter, query *dns.Msg) {
			if query.Question[0].Qtype == qtype {
				fault(w, query)
				return
			}
			_ = w.WriteMsg(new(dns.Msg).SetRcode(query, dns.RcodeNameError))
		}
	}
	noData := func(w dns.ResponseWriter, query *dns.Msg) {
		answer := new(dns.Msg).SetReply(query)
		answer.RecursionAvailable = true
		_ = w.WriteMsg(answer)
	}
	for _, tc := range []struct {
		given string
		fault dnsserver.Handler
		gone  bool
	}{
		{"NXDOMAIN", dnsserver.Code(dns.RcodeNameError), true},
		{"NODATA", noData, true},
		{"SERVFAIL", dnsserver.Code(dns.RcodeServerFailure), false},
		{"REFUSED", dnsserver.Code(dns.RcodeRefused), false},
		{"NOTIMP", dnsserver.Code(dns.RcodeNotImplemented), false},
		{"NXDOMAIN for IPv4, SERVFAIL for IPv6", onlyFor(dns.TypeAAAA, dnsserver.Code(dns.RcodeServerFailure)), false},
		{"SERVFAIL for IPv4, NXDOMAIN for IPv6", onlyFor(dns.TypeA, dnsserver.Code(dns.RcodeServerFailure)), false},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			name := strings.NewReplacer(",", "", "#", "").Replace(nameOf(t))
			zone.SetA(name, "10.0.0.1")
			w := start(t, name+":80")
			w.expect(t, "at first", "10.0.0.1:80")
			zone.Fault(name, tc.fault)
			seen := zone.Queries(name, dns.TypeA, "")
			w.ResolveNow()
			if tc.gone {
				r := w.next(t)
				if r.Err == nil || r.Addresses != nil {
					t.Errorf("result %+v, want that 10.0.0.1 is gone", r)
				}
				zone.Fault(name, nil)
				w.expect(t, "when the name has the address again, without being asked", "10.0.0.1:80")
				return
			}
			zone.Wait(testutils.Context(t), t, name, dns.TypeA, seen+1)
			zone.SetA(name, "10.0.0.2")
			zone.Fault(name, nil)
			w.expect(t, "the next result, none having said that there is no address", "10.0.0.2:80")
		})
	}
}
