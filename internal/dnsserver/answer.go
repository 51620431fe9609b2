package dnsserver

import (
	"github.com/miekg/dns"
)

// maxAliases bounds the aliases that one answer follows.
const maxAliases = 8

func (s *Server) serve(w dns.ResponseWriter, query *dns.Msg) {
	if len(query.Question) != 1 {
		_ = w.WriteMsg(new(dns.Msg).SetRcode(query, dns.RcodeFormatError))
		return
	}
	q := query.Question[0]
	network := w.LocalAddr().Network()
	var fault Handler
	s.state.Change(func() {
		s.queries = append(s.queries, Query{Name: key(q.Name), Type: q.Qtype, Network: network})
		fault = s.faults[key(q.Name)]
	})
	if fault != nil {
		fault(w, query)
		return
	}
	answer := s.Answer(query)
	size := dns.MaxMsgSize
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
	for range maxAliases {
		var rrs []dns.RR
		known := false
		s.state.Look(func() { rrs, known = s.records[key(name)] })
		if !known {
			answer.Rcode = dns.RcodeNameError
			return answer
		}
		var alias *dns.CNAME
		for _, rr := range rrs {
			if c, ok := rr.(*dns.CNAME); ok {
				alias = c
			}
			if rr.Header().Rrtype == q.Qtype {
				answer.Answer = append(answer.Answer, dns.Copy(rr))
			}
		}
		if alias == nil || q.Qtype == dns.TypeCNAME {
			return answer
		}
		answer.Answer = append(answer.Answer, dns.Copy(alias))
		name = alias.Target
	}
	return answer
}
