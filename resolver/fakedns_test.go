package resolver

import (
	"strings"
	"testing"

	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/resolver/internal/lookup"
)

// ofChannel is a prefix of the names that are the targets of channels.
const ofChannel = "channel"

// names resolves names that end in ".fake:80"; gRPC's resolver resolves the others. Tests give
// the answers, on their own goroutine, and do not share names.
var names = &fakeDNS{Builder: grpcresolver.Get("dns"), conns: map[string]grpcresolver.ClientConn{}, asked: map[string]int{}, used: map[string][]string{}}

type fakeDNS struct {
	grpcresolver.Builder
	xdstest.State
	// conns are those of the last look-ups, asked counts the others.
	conns map[string]grpcresolver.ClientConn
	asked map[string]int
	// used has the names of each test.
	used map[string][]string
}

func (d *fakeDNS) Build(target grpcresolver.Target, cc grpcresolver.ClientConn, opts grpcresolver.BuildOptions) (grpcresolver.Resolver, error) {
	name := target.Endpoint()
	if !strings.HasSuffix(name, ".fake:80") {
		return d.Builder.Build(target, cc, opts)
	}
	if !lookup.Watched(name) && !strings.HasPrefix(name, ofChannel) {
		return fakeName{}, nil
	}
	d.Change(func() {
		if d.conns[name] != nil {
			d.asked[name]++
		}
		d.conns[name] = cc
	})
	return fakeName{}, nil
}

// watcher returns what looks up the name, once something does.
func (d *fakeDNS) watcher(t *testing.T, name string) (cc grpcresolver.ClientConn) {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	d.Change(func() { d.used[test] = append(d.used[test], name) })
	d.Await(t, name+" to be looked up", func() bool { cc = d.conns[name]; return cc != nil })
	return cc
}

// forget is called at the end of a test, after its look-ups.
func (d *fakeDNS) forget(t *testing.T) {
	test, _, _ := strings.Cut(t.Name(), "/")
	d.Change(func() {
		for _, name := range d.used[test] {
			delete(d.conns, name)
			delete(d.asked, name)
		}
		delete(d.used, test)
	})
}

// answer is an answer of DNS.
func (d *fakeDNS) answer(t *testing.T, name string, addresses ...string) {
	t.Helper()
	var s grpcresolver.State
	for _, a := range addresses {
		s.Addresses = append(s.Addresses, grpcresolver.Address{Addr: a})
	}
	err := d.watcher(t, name).UpdateState(s)
	if (err != nil) != (len(addresses) == 0) {
		t.Errorf("UpdateState with %d addresses returned %v", len(addresses), err)
	}
}

// fakeName is one look-up of a name.
type fakeName struct{}

func (fakeName) ResolveNow(grpcresolver.ResolveNowOptions) {}
func (fakeName) Close()                                    {}
