// Package dnsserver is a DNS server on a real loopback port, over UDP and TCP,
// for tests of what resolves names. It answers for the names a test gives it,
// truncates what does not fit into a UDP packet, and can be set to answer
// wrongly or not at all.
//
// It is for tests and for cmd only.
package dnsserver

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/dynxds/dynxds/internal/await"
)

// Server is the DNS server. It is safe for concurrent use.
type Server struct {
	addr    string
	servers []*dns.Server
	serving sync.WaitGroup

	state   await.State
	records map[string][]dns.RR // by lower-case name
	faults  map[string]Handler
	queries []Query
}

// Handler answers a query in place of the Server. It may write any message,
// several, or none.
type Handler func(w dns.ResponseWriter, query *dns.Msg)

// Query is a query that the Server received.
type Query struct {
	// Name is the name asked for, in lower case, with its final dot.
	Name string
	// Type is the record type, for example dns.TypeTXT.
	Type uint16
	// Network is "udp" or "tcp".
	Network string
}

// Start starts a Server that is closed when the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// New starts a Server. The caller has to Close it.
func New() (*Server, error) {
	packets, listener, err := listen()
	if err != nil {
		return nil, fmt.Errorf("DNS server: %w", err)
	}
	s := &Server{
		addr:    listener.Addr().String(),
		records: map[string][]dns.RR{},
		faults:  map[string]Handler{},
	}
	s.servers = []*dns.Server{
		{PacketConn: packets, Handler: dns.HandlerFunc(s.serve)},
		{Listener: listener, Handler: dns.HandlerFunc(s.serve)},
	}
	for _, server := range s.servers {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		s.serving.Go(func() {
			// A server that fails shows as one that does not answer.
			_ = server.ActivateAndServe()
		})
		<-started
	}
	return s, nil
}

// listen finds a port that is free for UDP and TCP.
func listen() (net.PacketConn, net.Listener, error) {
	const attempts = 20
	var lastErr error
	for range attempts {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, err
		}
		packets, err := net.ListenPacket("udp", listener.Addr().String())
		if err == nil {
			return packets, listener, nil
		}
		lastErr = err
		listener.Close()
	}
	return nil, nil, lastErr
}

// Close stops the server.
func (s *Server) Close() {
	for _, server := range s.servers {
		_ = server.Shutdown()
	}
	s.serving.Wait()
}

// Addr returns "127.0.0.1:port".
func (s *Server) Addr() string { return s.addr }

// SetTXT gives the name these TXT records in place of those it has, each as its
// character strings of at most 255 bytes. Strings splits a text into such.
func (s *Server) SetTXT(name string, records ...[]string) {
	var values []string
	for _, parts := range records {
		quoted := make([]string, len(parts))
		for i, text := range parts {
			quoted[i] = `"` + escape(text) + `"`
		}
		values = append(values, strings.Join(quoted, " "))
	}
	s.set(name, dns.TypeTXT, values...)
}

// escape writes a text in the format of zone files.
func escape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' || c == '"':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\%03d`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// Strings splits a text into character strings of at most size bytes.
func Strings(text string, size int) []string {
	var parts []string
	for len(text) > size {
		parts = append(parts, text[:size])
		text = text[size:]
	}
	return append(parts, text)
}

// SetA gives the name these IPv4 addresses in place of those it has.
func (s *Server) SetA(name string, addresses ...string) {
	s.set(name, dns.TypeA, addresses...)
}

// SetAAAA gives the name these IPv6 addresses in place of those it has.
func (s *Server) SetAAAA(name string, addresses ...string) {
	s.set(name, dns.TypeAAAA, addresses...)
}

// SetCNAME makes the name an alias of another.
func (s *Server) SetCNAME(name, target string) { s.set(name, dns.TypeCNAME, dns.Fqdn(target)) }

// Fault makes h answer the queries for a name; nil ends that.
func (s *Server) Fault(name string, h Handler) {
	s.state.Look(func() { s.faults[key(name)] = h })
}

// Silence is a fault: no answer at all.
func Silence(dns.ResponseWriter, *dns.Msg) {}

// Code returns a fault: an empty answer with a response code such as
// dns.RcodeServerFailure.
func Code(rcode int) Handler {
	return func(w dns.ResponseWriter, query *dns.Msg) { _ = w.WriteMsg(new(dns.Msg).SetRcode(query, rcode)) }
}

func key(name string) string { return strings.ToLower(dns.Fqdn(name)) }

// set gives the name records of a type in place of those it has, with values as in zone files.
func (s *Server) set(name string, typ uint16, values ...string) {
	var rrs []dns.RR
	for _, value := range values {
		rr, err := dns.NewRR(fmt.Sprintf("%s 1 IN %s %s", dns.Fqdn(name), dns.TypeToString[typ], value))
		if err != nil {
			panic(err)
		}
		rrs = append(rrs, rr)
	}
	s.state.Look(func() {
		for _, rr := range s.records[key(name)] {
			if rr.Header().Rrtype != typ {
				rrs = append(rrs, rr)
			}
		}
		s.records[key(name)] = rrs
	})
}

// Queries returns how many queries for the name and type were received, over one network
// or, if that is empty, over both.
func (s *Server) Queries(name string, typ uint16, network string) (n int) {
	s.state.Look(func() { n = s.count(name, typ, network) })
	return n
}

func (s *Server) count(name string, typ uint16, network string) int {
	n := 0
	for _, q := range s.queries {
		if q.Name == key(name) && q.Type == typ && (network == "" || q.Network == network) {
			n++
		}
	}
	return n
}

// All returns every query received.
func (s *Server) All() (all []Query) {
	s.state.Look(func() { all = slices.Clone(s.queries) })
	return all
}

// Wait returns when at least n queries for the name and type were received.
func (s *Server) Wait(ctx context.Context, t testing.TB, name string, typ uint16, n int) {
	t.Helper()
	if err := s.state.Wait(ctx, func() bool { return s.count(name, typ, "") >= n }); err != nil {
		t.Fatalf("received %d queries for %s %s, waiting for %d: %v", s.Queries(name, typ, ""), dns.TypeToString[typ], name, n, err)
	}
}
