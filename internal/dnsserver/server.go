// Package dnsserver is a DNS server on a real loopback port, over UDP and TCP,
// for tests of what resolves names. It answers for the names a test gives it,
// truncates what does not fit into a UDP packet, and can be set to answer
// wrongly or not at all.
package dnsserver

import (
	"context"
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
	records map[string]map[uint16][]dns.RR // by lower-case name and type
	faults  map[string]Handler
	queries []Query
}

// Handler answers a query in place of the Server. It may write any message,
// several, or none.
type Handler func(w dns.ResponseWriter, query *dns.Msg)

// Query is a query that the Server received.
type Query struct {
	Name    string // that was asked for, in lower case, with its final dot
	Type    uint16 // of the records, for example dns.TypeTXT
	Network string // "udp" or "tcp"
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
		return nil, err
	}
	s := &Server{addr: listener.Addr().String(), records: map[string]map[uint16][]dns.RR{}, faults: map[string]Handler{}}
	s.servers = []*dns.Server{{PacketConn: packets}, {Listener: listener}}
	for _, server := range s.servers {
		started := make(chan struct{})
		server.Handler, server.NotifyStartedFunc = dns.HandlerFunc(s.serve), func() { close(started) }
		s.serving.Go(func() {
			// A server that fails shows as one that does not answer.
			_ = server.ActivateAndServe()
		})
		<-started
	}
	return s, nil
}

// listen finds a port that is free for UDP and TCP.
func listen() (packets net.PacketConn, listener net.Listener, err error) {
	for range 20 {
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, nil, err
		}
		if packets, err = net.ListenPacket("udp", listener.Addr().String()); err == nil {
			return packets, listener, nil
		}
		listener.Close()
	}
	return nil, nil, err
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
	var rrs []dns.RR
	for _, parts := range records {
		rr := &dns.TXT{Hdr: header(name, dns.TypeTXT)}
		for _, text := range parts {
			rr.Txt = append(rr.Txt, strings.ReplaceAll(text, `\`, `\\`)) // as in zone files
		}
		rrs = append(rrs, rr)
	}
	s.set(name, dns.TypeTXT, rrs)
}

// Strings splits a text into character strings of at most size bytes.
func Strings(text string, size int) (parts []string) {
	for ; len(text) > size; text = text[size:] {
		parts = append(parts, text[:size])
	}
	return append(parts, text)
}

// SetA gives the name these IPv4 and IPv6 addresses in place of those it has.
func (s *Server) SetA(name string, addresses ...string) {
	var v4, v6 []dns.RR
	for _, address := range addresses {
		if ip := net.ParseIP(address); ip.To4() != nil {
			v4 = append(v4, &dns.A{Hdr: header(name, dns.TypeA), A: ip})
		} else {
			v6 = append(v6, &dns.AAAA{Hdr: header(name, dns.TypeAAAA), AAAA: ip})
		}
	}
	s.set(name, dns.TypeA, v4)
	s.set(name, dns.TypeAAAA, v6)
}

// SetCNAME makes the name an alias of another.
func (s *Server) SetCNAME(name, target string) {
	s.set(name, dns.TypeCNAME, []dns.RR{&dns.CNAME{Hdr: header(name, dns.TypeCNAME), Target: dns.Fqdn(target)}})
}

func header(name string, typ uint16) dns.RR_Header {
	return dns.RR_Header{Name: dns.Fqdn(name), Rrtype: typ, Class: dns.ClassINET, Ttl: 1}
}

// set gives the name records of a type in place of those it has. They are not changed after that.
func (s *Server) set(name string, typ uint16, rrs []dns.RR) {
	s.state.Look(func() {
		if s.records[key(name)] == nil {
			s.records[key(name)] = map[uint16][]dns.RR{}
		}
		s.records[key(name)][typ] = rrs
	})
}

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

func (s *Server) serve(w dns.ResponseWriter, query *dns.Msg) {
	q := query.Question[0]
	network := w.LocalAddr().Network()
	var other Handler // in place of the answer
	s.state.Change(func() {
		s.queries = append(s.queries, Query{Name: key(q.Name), Type: q.Qtype, Network: network})
		other = s.faults[key(q.Name)]
	})
	if other != nil {
		other(w, query)
		return
	}
	answer, size := s.Answer(query), dns.MaxMsgSize
	if network == "udp" {
		size = dns.MinMsgSize
		if opt := query.IsEdns0(); opt != nil {
			size = int(opt.UDPSize())
		}
	}
	answer.Truncate(size)
	_ = w.WriteMsg(answer)
}

// Answer is the right answer to a query, of any length. Handlers can start from
// it.
func (s *Server) Answer(query *dns.Msg) *dns.Msg {
	q := query.Question[0]
	answer := new(dns.Msg).SetReply(query)
	answer.Authoritative, answer.RecursionAvailable, answer.Compress = true, true, true
	name := q.Name
	for range 8 { // aliases
		known := false
		var rrs, alias []dns.RR
		s.state.Look(func() {
			known = s.records[key(name)] != nil
			rrs, alias = s.records[key(name)][q.Qtype], s.records[key(name)][dns.TypeCNAME]
		})
		if !known {
			answer.Rcode = dns.RcodeNameError
		}
		for _, rr := range rrs {
			answer.Answer = append(answer.Answer, dns.Copy(rr))
		}
		if alias == nil || q.Qtype == dns.TypeCNAME {
			break
		}
		answer.Answer = append(answer.Answer, alias...)
		name = alias[0].(*dns.CNAME).Target
	}
	return answer
}

// Queries returns how many queries for the name and type were received, over one network
// or, if that is empty, over both.
func (s *Server) Queries(name string, typ uint16, network string) (n int) {
	s.state.Look(func() { n = s.count(name, typ, network) })
	return n
}

func (s *Server) count(name string, typ uint16, network string) (n int) {
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
