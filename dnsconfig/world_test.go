package dnsconfig

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/dynxds/dynxds/internal/dnsserver"
	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// fakeConfig is a parsed service config.
type fakeConfig struct {
	serviceconfig.Config
	text string
}

// fakeChannel is the resolver.ClientConn of a channel. It refuses service
// configs with "bad" in them.
type fakeChannel struct {
	xdstest.State
	states []resolver.State
	errs   []error
	refuse error
}

func (c *fakeChannel) UpdateState(s resolver.State) error {
	c.Change(func() { c.states = append(c.states, s) })
	return c.refuse
}

func (c *fakeChannel) ReportError(err error) {
	c.Change(func() { c.errs = append(c.errs, err) })
}

func (*fakeChannel) NewAddress([]resolver.Address) {}

func (*fakeChannel) ParseServiceConfig(text string) *serviceconfig.ParseResult {
	if strings.Contains(text, "bad") {
		return &serviceconfig.ParseResult{Err: errors.New("bad service config")}
	}
	return &serviceconfig.ParseResult{Config: fakeConfig{text: text}}
}

// await waits for the first of the states that is like that.
func (c *fakeChannel) await(t *testing.T, what string, like func(resolver.State) bool) (s resolver.State) {
	t.Helper()
	c.Await(t, "a state with "+what, func() bool {
		i := slices.IndexFunc(c.states, like)
		if i >= 0 {
			s = c.states[i]
		}
		return i >= 0
	})
	return s
}

// seen returns the states so far.
func (c *fakeChannel) seen() (states []resolver.State) {
	c.Change(func() { states = slices.Clone(c.states) })
	return states
}

// configOf returns the name in a state's service config, "none" if it has none.
func configOf(s resolver.State) string {
	if s.ServiceConfig == nil {
		return "none"
	}
	_, name, _ := strings.Cut(s.ServiceConfig.Config.(fakeConfig).text, `{"name":"`)
	return strings.TrimSuffix(name, `"}`)
}

func withConfig(name string) func(resolver.State) bool {
	return func(s resolver.State) bool { return configOf(s) == name }
}

func anything(resolver.State) bool { return true }

// world is a DNS server, and resolvers built to ask it.
type world struct {
	*dnsserver.Server
	t *testing.T
}

func newWorld(t *testing.T) world {
	t.Helper()
	return world{dnsserver.Start(t), t}
}

// fast are options for tests that look up more than once.
var fast = Options{MinInterval: time.Millisecond, Hostname: "host-1"}

const name, configName = "service.test", "_grpc_config.service.test"

// publish gives the name a TXT record with the list.
func (w world) publish(choices ...string) {
	w.SetTXT(configName, dnsserver.Strings("grpc_config="+list(choices...), 255))
}

// build resolves the endpoint at the server.
func (w world) build(endpoint string, o Options) (*fakeChannel, resolver.Resolver) {
	w.t.Helper()
	cc := new(fakeChannel)
	return cc, w.buildFor(cc, endpoint, o, resolver.BuildOptions{})
}

// targetOf is a target whose authority is a DNS server.
func targetOf(server, endpoint string) resolver.Target {
	return resolver.Target{URL: url.URL{Scheme: scheme, Host: server, Path: "/" + endpoint}}
}

func (w world) buildFor(cc *fakeChannel, endpoint string, o Options, opts resolver.BuildOptions) resolver.Resolver {
	w.t.Helper()
	r, err := NewBuilder(o).Build(targetOf(w.Addr(), endpoint), cc, opts)
	xdstest.NoError(w.t, err)
	w.t.Cleanup(sync.OnceFunc(r.Close))
	return r
}

// resolve returns the first state that the channel of name gets.
func (w world) resolve() resolver.State {
	w.t.Helper()
	w.SetA(name, "127.0.0.1")
	cc, _ := w.build(name, fast)
	return cc.await(w.t, "anything", anything)
}

// resolveUntil asks to resolve again until the channel gets such a state.
func resolveUntil(t *testing.T, cc *fakeChannel, r resolver.Resolver, what string, like func(resolver.State) bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	asking.Go(func() {
		for retries.Wait(ctx, time.Millisecond) == nil {
			r.ResolveNow(resolver.ResolveNowOptions{})
		}
	})
	defer asking.Wait()
	defer cancel()
	cc.await(t, what, like)
}

func addressesOf(s resolver.State) []string {
	var all []string
	for _, e := range s.Endpoints {
		for _, a := range e.Addresses {
			all = append(all, a.Addr)
		}
	}
	slices.Sort(all)
	return all
}
