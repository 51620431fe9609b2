package dnsconfig

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/dnsserver"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// TestNameIsPrefixedWithGrpcConfig: A2, "Encoding in DNS TXT Records".
func TestNameIsPrefixedWithGrpcConfig(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(choice("a"))
	w.SetTXT(name, []string{"grpc_config=" + list(choice("wrong"))})
	w.SetA(name, "127.0.0.1", "127.0.0.2")
	cc, _ := w.build(name+":8443", fast)
	s := cc.await(t, "the service config", withConfig("a"))
	xdstest.Equal(t, "addresses", []string{"127.0.0.1:8443", "127.0.0.2:8443"}, addressesOf(s))
	xdstest.Equal(t, "states (the addresses and the service config in one)", 1, len(cc.seen()))
}

// TestStringsOfARecordAreConcatenatedInOrder: A2, "Encoding in DNS TXT
// Records", with RFC 4408, 3.1.3: without anything in between.
func TestStringsOfARecordAreConcatenatedInOrder(t *testing.T) {
	t.Parallel()
	record := `grpc_config=[{"clientLanguage":["go"],"percentage":100,"serviceConfig":{"name":"` + strings.Repeat("long ", 200) + `a"}}]`
	for split, size := range map[string]int{
		"one byte each":            1,
		"inside the name":          5,
		"before the equals sign":   len("grpc_config"),
		"after the equals sign":    len("grpc_config="),
		"inside a key":             len(`grpc_config=[{"client`),
		"inside a number":          len(`grpc_config=[{"clientLanguage":["go"],"percentage":1`),
		"at the limit of RFC 1035": 255,
		"at a space":               len(`grpc_config=[{"clientLanguage":["go"],"percentage":100,"serviceConfig":{"name":"long `),
	} {
		xdstest.Parallel(t, split, func(t *testing.T) {
			w := newWorld(t)
			w.SetTXT(configName, dnsserver.Strings(record, size))
			if got := configOf(w.resolve()); got != strings.Repeat("long ", 200)+"a" {
				t.Errorf("service config %q", got)
			}
		})
	}
	xdstest.Parallel(t, "with empty strings", func(t *testing.T) {
		w := newWorld(t)
		w.SetTXT(configName, []string{"", "grpc_", "", "config=", list(choice("a")), ""})
		xdstest.Equal(t, "service config", "a", configOf(w.resolve()))
	})
}

// TestResponsesOver512BytesComeByTCP: A2, "Open issues". EDNS0 lets a few more
// fit into a UDP packet.
func TestResponsesOver512BytesComeByTCP(t *testing.T) {
	t.Parallel()
	for _, size := range []int{600, 1500, 60000} {
		w := newWorld(t)
		long := strings.Repeat("x", size)
		w.publish(choice(long))
		if got := configOf(w.resolve()); got != long {
			t.Errorf("%d bytes: service config of %d", size, len(got))
		}
		if n := w.Queries(configName, dns.TypeTXT, "tcp"); (n > 0) != (size > 1232) {
			t.Errorf("%d bytes: %d queries by TCP", size, n)
		}
	}
}

// TestTruncatedAnswerIsAskedForByTCP: whatever little the truncated answer has.
func TestTruncatedAnswerIsAskedForByTCP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(choice("whole"))
	w.Fault(configName, func(rw dns.ResponseWriter, query *dns.Msg) {
		answer := w.Answer(query)
		if rw.LocalAddr().Network() == "udp" {
			answer.Truncated = true
			answer.Answer[0].(*dns.TXT).Txt = []string{`grpc_config=[{\"serviceConfig\":{\"name\":\"truncated\"}}]`}
		}
		_ = rw.WriteMsg(answer)
	})
	xdstest.Equal(t, "service config", "whole", configOf(w.resolve()))
}

// TestPrefixAllowsForACNAMEAtTheName: A2, "Rationale".
func TestPrefixAllowsForACNAMEAtTheName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(choice("a"))
	w.SetCNAME(name, "other.test")
	w.SetA("other.test", "127.0.0.7")
	cc, _ := w.build(name, fast)
	s := cc.await(t, "the service config", withConfig("a"))
	xdstest.Equal(t, "addresses", []string{"127.0.0.7:443"}, addressesOf(s))
}

func TestTXTRecordBehindACNAME(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.SetCNAME(configName, "shared.test")
	w.SetTXT("shared.test", []string{"grpc_config=" + list(choice("shared"))})
	xdstest.Equal(t, "service config", "shared", configOf(w.resolve()))
}

func TestNoRecordMeansNoConfig(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	xdstest.Equal(t, "NXDOMAIN: service config", "none", configOf(w.resolve()))
	w.SetA(configName, "127.0.0.1")
	xdstest.Equal(t, "no TXT: service config", "none", configOf(w.resolve()))
	w.publish(choice("a"))
	cc, r := w.build(name, fast)
	cc.await(t, "the service config", withConfig("a"))
	w.SetTXT(configName)
	resolveUntil(t, cc, r, "no service config", withConfig("none"))
}

// TestFailuresKeepTheLastGoodConfig: nothing but a good answer changes it.
func TestFailuresKeepTheLastGoodConfig(t *testing.T) {
	t.Parallel()
	wrongID := func(rw dns.ResponseWriter, query *dns.Msg) {
		answer := new(dns.Msg).SetRcode(query, dns.RcodeNameError)
		answer.Id++
		_ = rw.WriteMsg(answer)
	}
	otherQuestion := func(rw dns.ResponseWriter, query *dns.Msg) {
		answer := new(dns.Msg).SetRcode(query, dns.RcodeNameError)
		answer.Question[0].Name = "elsewhere.test."
		_ = rw.WriteMsg(answer)
	}
	garbage := func(rw dns.ResponseWriter, _ *dns.Msg) { _, _ = rw.Write([]byte("this is no DNS message")) }
	for fault, h := range map[string]dnsserver.Handler{
		"SERVFAIL":         dnsserver.Code(dns.RcodeServerFailure),
		"REFUSED":          dnsserver.Code(dns.RcodeRefused),
		"silence":          dnsserver.Silence,
		"wrong id":         wrongID,
		"another question": otherQuestion,
		"garbage":          garbage,
		"not JSON":         answerTXT("grpc_config=?"),
		"two attributes":   answerTXT("grpc_config=[]", "grpc_config=[]"),
		"truncated everywhere": func(rw dns.ResponseWriter, q *dns.Msg) {
			m := new(dns.Msg).SetReply(q)
			m.Truncated = true
			_ = rw.WriteMsg(m)
		},
	} {
		xdstest.Parallel(t, fault, func(t *testing.T) {
			w := newWorld(t)
			w.publish(choice("a"))
			w.SetA(name, "127.0.0.1")
			results := make(chan *Result, 1000)
			o := fast
			o.Timeout = 200 * time.Millisecond
			o.OnResult = func(r *Result) { results <- r }
			cc, r := w.build(name, o)
			cc.await(t, "the service config", withConfig("a"))
			<-results

			w.Fault(configName, h)
			r.ResolveNow(resolver.ResolveNowOptions{})
			if got := (<-results).Outcome; got != OutcomeFailed && got != OutcomeFaulty {
				t.Errorf("outcome %v", got)
			}
			// A further state, with other addresses, has it still.
			w.SetA(name, "127.0.0.9")
			j := r.(*joint)
			if err := (clientConn{j}).UpdateState(resolver.State{Addresses: []resolver.Address{{Addr: "127.0.0.9:443"}}}); err != nil {
				t.Error(err)
			}
			for _, s := range cc.seen() {
				xdstest.Equal(t, "a state has the service config", "a", configOf(s))
			}
		})
	}
}

// answerTXT is an error: these records.
func answerTXT(records ...string) dnsserver.Handler {
	return func(w dns.ResponseWriter, query *dns.Msg) {
		answer := new(dns.Msg).SetReply(query)
		for _, r := range records {
			answer.Answer = append(answer.Answer, &dns.TXT{
				Hdr: dns.RR_Header{Name: query.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{r}})
		}
		_ = w.WriteMsg(answer)
	}
}

// TestAddressesDoNotWaitForEverForTheConfig: DNS does not answer for the TXT
// records, so the channel starts without them, and gets them when DNS answers.
func TestAddressesDoNotWaitForEverForTheConfig(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(choice("a"))
	w.SetA(name, "127.0.0.1")
	w.Fault(configName, dnsserver.Silence)
	o := fast
	o.Timeout = 100 * time.Millisecond
	cc, _ := w.build(name, o)
	cc.await(t, "addresses without a service config", withConfig("none"))
	w.Fault(configName, nil)
	cc.await(t, "the service config, without being asked", withConfig("a"))
}

// TestNoLookUpForIPLiteralsAndLocalhost: gRFC A10.
func TestNoLookUpForIPLiteralsAndLocalhost(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"127.0.0.1:80", "127.0.0.1", "[::1]:80", "::1", "localhost:80", "LocalHost", "localhost."} {
		xdstest.Parallel(t, endpoint, func(t *testing.T) {
			w := newWorld(t)
			cc, r := w.build(endpoint, fast)
			cc.await(t, "anything", anything)
			r.ResolveNow(resolver.ResolveNowOptions{})
			r.Close()
			for _, q := range w.All() {
				if q.Type == dns.TypeTXT {
					t.Errorf("query %+v", q)
				}
			}
		})
	}
}

func TestEnvironmentSwitchesTheLookUpOff(t *testing.T) {
	t.Setenv("GRPC_ENABLE_TXT_SERVICE_CONFIG", "false")
	w := newWorld(t)
	w.publish(choice("a"))
	if got := configOf(w.resolve()); got != "none" || w.Queries(configName, dns.TypeTXT, "") != 0 {
		t.Errorf("service config %q", got)
	}
}

func TestCloseDoesNotWaitForASilentDNSServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.SetA(name, "127.0.0.1")
	w.Fault(configName, dnsserver.Silence)
	_, r := w.build(name, fast)
	w.Wait(testutils.Context(t), t, configName, dns.TypeTXT, 1)
	closed := make(chan struct{})
	began := time.Now()
	go func() { r.Close(); close(closed) }()
	<-closed
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("Close waited %v for a DNS server that is silent", d)
	}
}

// TestSearchListHidesNoFailure: a name of the search list that does not exist is
// no reason to believe that the name before it does not.
func TestSearchListHidesNoFailure(t *testing.T) {
	t.Parallel()
	r := newNetResolver(true, new(net.Dialer).DialContext)
	if !r.StrictErrors || !r.PreferGo {
		t.Errorf("resolver %+v", r)
	}
}

// gRFC A6: gRPC-Go does not hedge, which is logged.
func TestHedgingPolicyIsReported(t *testing.T) {
	t.Parallel()
	for endpoint, test := range map[string]struct {
		serviceConfig string
		want          int
	}{
		"hedged.test":  {`{"methodConfig":[{"name":[{}]},{"name":[{"service":"s"}],"hedgingPolicy":{"maxAttempts":2}}]}`, 1},
		"none.test":    {`{"methodConfig":[{"name":[{}],"hedgingPolicy":null}]}`, 0},
		"retried.test": {`{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":2,"initialBackoff":"1s","maxBackoff":"1s","backoffMultiplier":1,"retryableStatusCodes":["INTERNAL"]}}]}`, 0},
	} {
		w := newWorld(t)
		w.SetA(endpoint, "127.0.0.1")
		w.SetTXT(Prefix+endpoint, dnsserver.Strings(`grpc_config=[{"serviceConfig":`+test.serviceConfig+`}]`, 255))
		before := warnings.Count("hedgingPolicy", endpoint)
		fake := new(fakeChannel)
		r, err := NewBuilder(fast).Build(targetOf(w.Addr(), endpoint), fake, resolver.BuildOptions{})
		if err != nil {
			t.Fatal(err)
		}
		fake.await(t, "anything", anything)
		r.Close()
		if got := warnings.Count("hedgingPolicy", endpoint) - before; got != test.want {
			t.Errorf("%s: %d warnings, want %d", endpoint, got, test.want)
		}
	}
}
