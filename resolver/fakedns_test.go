package resolver

import (
	"strings"
	"sync"
	"testing"

	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/testutils"
)

// names is the DNS of names that end in ".fake:80", in the place of gRPC's, which
// resolves the others. The test says what it answers and when, so that nothing
// happens on another goroutine than the test's. Tests use names of their own.
var names = &fakeDNS{Builder: grpcresolver.Get("dns"), conns: map[string]grpcresolver.ClientConn{}, news: make(chan struct{})}

type fakeDNS struct {
	grpcresolver.Builder

	mu    sync.Mutex
	conns map[string]grpcresolver.ClientConn
	asked map[string]int
	// news is closed and replaced at each change.
	news chan struct{}
}

func (d *fakeDNS) Build(target grpcresolver.Target, cc grpcresolver.ClientConn, opts grpcresolver.BuildOptions) (grpcresolver.Resolver, error) {
	name := target.Endpoint()
	if !strings.HasSuffix(name, ".fake:80") {
		return d.Builder.Build(target, cc, opts)
	}
	d.change(func() { d.conns[name] = cc })
	return fakeName{d, name}, nil
}

func (d *fakeDNS) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
	close(d.news)
	d.news = make(chan struct{})
}

// await returns when ok does, which is called with d locked.
func (d *fakeDNS) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx := testutils.Context(t)
	for {
		d.mu.Lock()
		now, news := ok(), d.news
		d.mu.Unlock()
		if now {
			return
		}
		select {
		case <-news:
		case <-ctx.Done():
			t.Fatal("never: " + what)
		}
	}
}

// watcher returns who looks up the name, once there is somebody.
func (d *fakeDNS) watcher(t *testing.T, name string) (cc grpcresolver.ClientConn) {
	t.Helper()
	d.await(t, name+" is looked up", func() bool { cc = d.conns[name]; return cc != nil })
	return cc
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

// awaitEnd returns when the name is not looked up any more.
func (d *fakeDNS) awaitEnd(t *testing.T, name string) {
	t.Helper()
	d.await(t, name+" is not looked up any more", func() bool { return d.conns[name] == nil })
}

// fakeName is the look-up of one name.
type fakeName struct {
	d    *fakeDNS
	name string
}

func (n fakeName) ResolveNow(grpcresolver.ResolveNowOptions) {
	n.d.change(func() {
		if n.d.asked == nil {
			n.d.asked = map[string]int{}
		}
		n.d.asked[n.name]++
	})
}

func (n fakeName) Close() { n.d.change(func() { delete(n.d.conns, n.name) }) }
