package dnsconfig

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/dnsserver"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/testutils"
)

// place is a world that a case of testdata/lookups.txt leads, with a resolver.
type place struct {
	world
	cc      *fakeChannel
	r       resolver.Resolver
	results chan *Result
	states  int // at the end of resolve
}

// TestLookUps has what a channel gets from DNS. The first case of the file says what the steps are.
func TestLookUps(t *testing.T) {
	t.Parallel()
	golden.Cases(t, "testdata/lookups.txt", func(_, input string) string {
		p := &place{world: newWorld(t), cc: new(fakeChannel), results: make(chan *Result, 1000)}
		p.SetA(name, "127.0.0.1")
		var out []string
		for line := range strings.Lines(input) {
			if text := p.step(strings.Fields(line)); text != "" {
				out = append(out, text)
			}
		}
		if p.r != nil {
			p.r.Close()
		}
		return strings.Join(out, "\n")
	})
}

func (p *place) step(words []string) string {
	p.t.Helper()
	args := words[1:]
	switch words[0] {
	case "a":
		p.SetA(args[0], args[1:]...)
	case "cname":
		p.SetCNAME(args[0], args[1])
	case "config":
		p.SetTXT(args[0], dnsserver.Strings("grpc_config="+choices(args[1:]), 255))
	case "long": // with strings of so many bytes
		size, err := strconv.Atoi(args[1])
		xdstest.NoError(p.t, err)
		p.SetTXT(args[0], dnsserver.Strings("grpc_config="+choices([]string{long}), size))
	case "texts":
		p.SetTXT(args[0], quoted(p.t, strings.Join(args[1:], " ")))
	case "fault":
		p.Fault(configName, p.fault(strings.Join(args, " ")))
	case "resolve":
		return p.resolve(args, fast)
	case "impatient":
		o := fast
		o.Timeout = 200 * time.Millisecond
		return p.resolve(args, o)
	case "records":
		p.resolve(args, fast)
		p.r.ResolveNow(resolver.ResolveNowOptions{})
		p.r.Close()
		p.r = nil
		if p.askedForRecords() {
			return "looked up"
		}
		return "not looked up"
	case "until":
		resolveUntil(p.t, p.cc, p.r, "service config "+args[0], withConfig(args[0]))
	case "ask":
		p.r.ResolveNow(resolver.ResolveNowOptions{})
		result := <-p.results
		if result.Outcome == OutcomeFailed && !strings.Contains(result.Err.Error(), p.Addr()) {
			return result.Err.Error() // which does not name the server that was asked
		}
		return fmt.Sprintf("%s, %d new states", result.Outcome, len(p.cc.seen())-p.states)
	case "address": // a further state of gRPC's resolver
		xdstest.NoError(p.t, p.r.(*joint).UpdateState(resolver.State{Addresses: []resolver.Address{{Addr: args[0]}}}))
		return p.state()
	}
	return ""
}

// long stands for a long name of a service config.
const long = "long"

// choices are a list of choices for service configs of the given names, some of them for one host: "NAME@HOST".
func choices(names []string) string {
	for i, name := range names {
		name, host, of := strings.Cut(name, "@")
		switch n, err := strconv.Atoi(name); {
		case err == nil:
			names[i] = choice(strings.Repeat("x", n))
		case of:
			names[i] = choice(name, fmt.Sprintf(`"clientHostname":[%q]`, host))
		case name == long:
			names[i] = choice(strings.Repeat("long ", 200), `"clientLanguage":["go"]`, `"percentage":100`)
		default:
			names[i] = choice(name)
		}
	}
	return list(names...)
}

// resolve starts the resolver for an endpoint, by another DNS server if that is given, and returns the state after the first
// look-up that has not failed.
func (p *place) resolve(args []string, o Options) string {
	p.t.Helper()
	args = append(args, "", "")
	if args[1] == "" {
		args[1] = p.Addr()
	}
	o.OnResult = func(r *Result) { p.results <- r }
	var err error
	if p.r, err = NewBuilder(o).Build(targetOf(args[1], args[0]), p.cc, resolver.BuildOptions{}); err != nil {
		p.r = nil
		return "!" + err.Error()
	}
	last := &Result{Outcome: OutcomeFailed}
	for _, records := p.r.(*joint); records && last.Outcome == OutcomeFailed; {
		last = <-p.results
	}
	p.cc.await(p.t, "what was found", func(s resolver.State) bool { return (s.ServiceConfig != nil) == (last.Choice != nil) })
	text := p.state()
	if p.Queries(configName, dns.TypeTXT, "tcp") > 0 {
		text += ", by TCP"
	}
	p.states = len(p.cc.seen())
	return text
}

func (p *place) askedForRecords() bool {
	return slices.ContainsFunc(p.All(), func(q dnsserver.Query) bool { return q.Type == dns.TypeTXT })
}

// state returns the service config and the addresses of the last state.
func (p *place) state() string {
	s := p.cc.seen()[len(p.cc.seen())-1]
	config := configOf(s)
	switch {
	case config == strings.Repeat("long ", 200):
		config = long
	case len(config) > 100 && strings.Trim(config, "x") == "":
		config = strconv.Itoa(len(config))
	}
	return strings.TrimSpace(config + " " + strings.Join(addressesOf(s), " "))
}

// fault is what is wrong with the answers for the records.
func (p *place) fault(kind string) dnsserver.Handler {
	reply := func(change func(answer *dns.Msg)) dnsserver.Handler {
		return func(rw dns.ResponseWriter, query *dns.Msg) {
			answer := new(dns.Msg).SetRcode(query, dns.RcodeNameError)
			change(answer)
			_ = rw.WriteMsg(answer)
		}
	}
	switch kind {
	case "SERVFAIL":
		return dnsserver.Code(dns.RcodeServerFailure)
	case "REFUSED":
		return dnsserver.Code(dns.RcodeRefused)
	case "silence":
		return dnsserver.Silence
	case "wrong id":
		return reply(func(answer *dns.Msg) { answer.Id++ })
	case "another question":
		return reply(func(answer *dns.Msg) { answer.Question[0].Name = "elsewhere.test." })
	case "truncated":
		return reply(func(answer *dns.Msg) { answer.Rcode, answer.Truncated = dns.RcodeSuccess, true })
	case "garbage":
		return func(rw dns.ResponseWriter, _ *dns.Msg) { _, _ = rw.Write([]byte("this is no DNS message")) }
	case "truncated by UDP": // with another record
		return func(rw dns.ResponseWriter, query *dns.Msg) {
			answer := p.Answer(query)
			if rw.LocalAddr().Network() == "udp" {
				answer.Truncated = true
				answer.Answer[0].(*dns.TXT).Txt = []string{`grpc_config=[{\"serviceConfig\":{\"name\":\"truncated\"}}]`}
			}
			_ = rw.WriteMsg(answer)
		}
	}
	return nil
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

// gRFC A6: gRPC-Go does not hedge, which is logged. So is a record without the attribute.
func TestWarnings(t *testing.T) {
	t.Parallel()
	for endpoint, test := range map[string]struct {
		record string
		want   int
	}{
		"hedged.test":  {`grpc_config=[{"serviceConfig":{"methodConfig":[{"name":[{}]},{"name":[{"service":"s"}],"hedgingPolicy":{"maxAttempts":2}}]}}]`, 1},
		"none.test":    {`grpc_config=[{"serviceConfig":{"methodConfig":[{"name":[{}],"hedgingPolicy":null}]}}]`, 0},
		"retried.test": {`grpc_config=[{"serviceConfig":{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":2,"initialBackoff":"1s","maxBackoff":"1s","backoffMultiplier":1,"retryableStatusCodes":["INTERNAL"]}}]}}]`, 0},
		"quoted.test":  {`"grpc_config=[]"`, 1},
	} {
		w := newWorld(t)
		w.SetA(endpoint, "127.0.0.1")
		w.SetTXT(Prefix+endpoint, dnsserver.Strings(test.record, 255))
		before := warnings.Count(endpoint)
		fake := new(fakeChannel)
		r, err := NewBuilder(fast).Build(targetOf(w.Addr(), endpoint), fake, resolver.BuildOptions{})
		xdstest.NoError(t, err)
		fake.await(t, "anything", anything)
		r.Close()
		xdstest.Equal(t, "warnings about "+endpoint, test.want, warnings.Count(endpoint)-before)
	}
}
