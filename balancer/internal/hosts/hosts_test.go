package hosts

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

type fakeConn struct {
	balancer.SubConn
	released atomic.Int64
}

func (c *fakeConn) Release() { c.released.Add(1) }

func at(addrs ...string) []xdsresource.Locality {
	var l xdsresource.Locality
	for _, a := range addrs {
		l.Endpoints = append(l.Endpoints, xdsresource.Endpoint{Address: a})
	}
	return []xdsresource.Locality{l}
}

func newRegistry() *Registry { return New(func() {}, func() {}) }

// connect adds a connection in the given state.
func connect(r *Registry, address string, s connectivity.State) (*Conn, *fakeConn) {
	sc := new(fakeConn)
	c := r.NewConn(address, sc)
	c.Add()
	c.Report(s)
	return c, sc
}

// gRFC A75: "When the child policy unrefs a subchannel it owns, if the entry's
// last_used_time is newer than the idle_timeout, the policy assumes ownership".
func TestWhatIsKept(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		prepare func(r *Registry, c *Conn)
		want    bool
	}{
		{"used, connected", func(r *Registry, c *Conn) { c.Host().Use() }, true},
		{"never used", func(r *Registry, c *Conn) {}, false},
		{"used too long ago", func(r *Registry, c *Conn) { c.Host().Use(); time.Sleep(time.Hour) }, false},
		{"used nearly as long ago", func(r *Registry, c *Conn) { c.Host().Use(); time.Sleep(time.Hour - 1) }, true},
		{"used, connecting", func(r *Registry, c *Conn) { c.Host().Use(); c.Report(connectivity.Connecting) }, true},
		{"used, idle", func(r *Registry, c *Conn) { c.Host().Use(); c.Report(connectivity.Idle) }, false},
		{"used, failed", func(r *Registry, c *Conn) { c.Host().Use(); c.Report(connectivity.TransientFailure) }, false},
		{"used, another one is connected", func(r *Registry, c *Conn) { c.Host().Use(); connect(r, "a", connectivity.Ready) }, false},
		{"used, another one is connecting", func(r *Registry, c *Conn) { c.Host().Use(); connect(r, "a", connectivity.Connecting) }, true},
		{"used, the endpoint is gone", func(r *Registry, c *Conn) { c.Host().Use(); r.Update(at("b"), xdsresource.DefaultSessions) }, false},
		{"used, its status is not for sessions", func(r *Registry, c *Conn) {
			c.Host().Use()
			r.Update(at("a"), xdsresource.Sessions{IdleTimeout: time.Hour})
		}, false},
		{"used, everything ends", func(r *Registry, c *Conn) { c.Host().Use(); r.Close() }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry()
				r.Update(at("a"), xdsresource.DefaultSessions)
				c, sc := connect(r, "a", connectivity.Ready)
				tc.prepare(r, c)
				if got := c.Abandon(); got != tc.want {
					t.Errorf("kept: %v, want %v", got, tc.want)
				}
				if n := sc.released.Load(); n != 0 {
					t.Errorf("released %d times, which is for whoever abandons it", n)
				}
				r.Close()
				if got := sc.released.Load() == 1; got != tc.want {
					t.Errorf("released in the end: %v, want %v", got, tc.want)
				}
			})
		})
	}
}

func TestTheBestConnectionCounts(t *testing.T) {
	t.Parallel()
	r := newRegistry()
	// One from before anybody asked.
	early, earlyConn := connect(r, "a", connectivity.TransientFailure)
	r.Update(at("a"), xdsresource.DefaultSessions)
	h := r.Host("a")
	expect := func(when string, want *fakeConn, state connectivity.State) {
		t.Helper()
		if sc, s := h.Conn(); want == nil && sc != nil || want != nil && (sc != want || s != state) {
			t.Errorf("%s: %p in state %v, want %p in %v", when, sc, s, want, state)
		}
	}
	expect("one that failed", earlyConn, connectivity.TransientFailure)
	second, secondConn := connect(r, "a", connectivity.Connecting)
	expect("one that connects", secondConn, connectivity.Connecting)
	early.Report(connectivity.Ready)
	expect("the first is connected", earlyConn, connectivity.Ready)
	early.Report(connectivity.Idle)
	expect("the first is idle", secondConn, connectivity.Connecting)
	second.Report(connectivity.Shutdown)
	expect("the second is shut down", earlyConn, connectivity.Idle)
	early.Abandon()
	expect("there is none", nil, 0)
	late := r.NewConn("a", new(fakeConn))
	late.Abandon()
	late.Add()
	expect("one that was abandoned before it was added", nil, 0)
}

// Whatever happens at the same time, in the end each connection is either its
// policy's to release or was released once, and none is left.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	r := newRegistry()
	addrs := []string{"a", "b", "c"}
	r.Update(at(addrs...), xdsresource.DefaultSessions)
	var mu sync.Mutex
	all := map[*fakeConn]int64{} // how often each should be released by the Registry
	var wg sync.WaitGroup
	for i := range 8 {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		wg.Go(func() {
			for range 2000 {
				addr := addrs[random.IntN(len(addrs))]
				switch random.IntN(10) {
				case 0:
					r.Update(at(addrs[:1+random.IntN(len(addrs))]...), xdsresource.DefaultSessions)
				case 1:
					r.Sweep()
				default:
					c, sc := connect(r, addr, connectivity.State(random.IntN(4)))
					if h := r.Host(addr); h != nil {
						h.Use()
						h.Conn()
						version := r.Version()
						r.Await(version)
					}
					kept := int64(0)
					if c.Abandon() {
						kept = 1
					}
					mu.Lock()
					all[sc] = kept
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	r.Close()
	for sc, want := range all {
		if got := sc.released.Load(); got != want {
			t.Fatalf("a connection was released %d times, want %d", got, want)
		}
	}
	if n := len(r.conns); n != 0 {
		t.Errorf("connections to %d addresses are left: %v", n, fmt.Sprint(r.conns))
	}
}
