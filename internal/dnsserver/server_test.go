package dnsserver_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"github.com/dynxds/dynxds/internal/dnsserver"
	"github.com/dynxds/dynxds/testutils"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// resolverOf returns Go's resolver, asking s.
func resolverOf(s *dnsserver.Server) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.Addr())
	}}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	s := dnsserver.Start(t)
	r, ctx := resolverOf(s), testutils.Context(t)
	s.SetA("a.test", "127.0.0.1", "127.0.0.2")
	s.SetCNAME("alias.test", "a.test")
	odd := "quote \" backslash \\ caf\xc3\xa9 \x00"
	s.SetTXT("a.test", []string{odd}, []string{"split ", "in two"})

	if got, err := r.LookupHost(ctx, "alias.test."); err != nil || len(got) != 2 {
		t.Errorf("LookupHost: %v, %v; want both addresses", got, err)
	}
	got, err := r.LookupTXT(ctx, "a.test.")
	if diff := cmp.Diff([]string{odd, "split in two"}, got); err != nil || diff != "" {
		t.Errorf("LookupTXT: %v (-want +got):\n%s", err, diff)
	}
	if _, err := r.LookupTXT(ctx, "none.test."); err == nil || !err.(*net.DNSError).IsNotFound {
		t.Errorf("LookupTXT of a name that does not exist: %v", err)
	}
}

func TestLongAnswersComeByTCP(t *testing.T) {
	t.Parallel()
	s := dnsserver.Start(t)
	long := strings.Repeat("0123456789", 6000)
	s.SetTXT("long.test", dnsserver.Strings(long, 255))
	got, err := resolverOf(s).LookupTXT(testutils.Context(t), "long.test.")
	if err != nil || len(got) != 1 || got[0] != long {
		t.Fatalf("got %d records, %v; want one of %d bytes", len(got), err, len(long))
	}
	if udp, tcp := s.Queries("long.test", dns.TypeTXT, "udp"), s.Queries("long.test", dns.TypeTXT, "tcp"); udp != 1 || tcp != 1 {
		t.Errorf("%d queries by UDP and %d by TCP, want one of each", udp, tcp)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	s := dnsserver.Start(t)
	s.SetA("a.test", "127.0.0.1")
	s.Fault("a.test", dnsserver.Code(dns.RcodeServerFailure))
	if _, err := resolverOf(s).LookupHost(testutils.Context(t), "a.test."); err == nil || !strings.Contains(err.Error(), "misbehaving") {
		t.Errorf("SERVFAIL became %v", err)
	}
	s.Fault("a.test", nil)
	if _, err := resolverOf(s).LookupHost(testutils.Context(t), "a.test."); err != nil {
		t.Errorf("after the fault: %v", err)
	}
}
