package health_test

import (
	"errors"
	"sync"
	"testing"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/health"
)

// conn is a Conn and how often it was told that its endpoint's ejection changed.
type conn struct {
	*health.Conn
	told int
}

func connect(r *health.Registry, address string) *conn {
	c := &conn{}
	c.Conn = r.Connect(address, func() { c.told++ })
	return c
}

func (c *conn) expect(t *testing.T, when string, ejected bool, told int) {
	t.Helper()
	if c.Ejected() != ejected || c.told != told {
		t.Errorf("%s: ejected %v, told %d times; want %v, %d", when, c.Ejected(), c.told, ejected, told)
	}
}

func TestConnectionsLearnOfTheEjectionOfTheirEndpoint(t *testing.T) {
	t.Parallel()
	r, e, other := health.NewRegistry(), health.NewEndpoint(), health.NewEndpoint()
	early := connect(r, "a")
	early.expect(t, "before its endpoint is known", false, 0)
	r.Update(map[string]*health.Endpoint{"a": e, "b": e, "c": other})
	byOtherAddress, bystander := connect(r, "b"), connect(r, "c")

	r.Eject(e, true)
	early.expect(t, "ejected", true, 1)
	byOtherAddress.expect(t, "ejected, by another address (gRFC A61)", true, 1)
	bystander.expect(t, "another endpoint is ejected", false, 0)
	r.Eject(e, true)
	early.expect(t, "ejected again", true, 1)
	late := connect(r, "a")
	late.expect(t, "connected to an ejected endpoint", true, 0)

	late.Close()
	r.Eject(e, false)
	early.expect(t, "returned", false, 2)
	if late.told != 0 {
		t.Error("a closed connection was told")
	}
	if e.Ejected() {
		t.Error("the endpoint is still ejected")
	}
}

// gRFC A61, "Outlier Detection": the endpoint of an address may become another.
func TestAnAddressMovesToAnotherEndpoint(t *testing.T) {
	t.Parallel()
	r, bad, good := health.NewRegistry(), health.NewEndpoint(), health.NewEndpoint()
	r.Update(map[string]*health.Endpoint{"a": bad, "b": good})
	a, b := connect(r, "a"), connect(r, "b")
	r.Eject(bad, true)
	a.expect(t, "ejected", true, 1)
	r.Update(map[string]*health.Endpoint{"a": good, "b": bad})
	a.expect(t, "now of the good endpoint", false, 2)
	b.expect(t, "now of the bad endpoint", true, 1)
	r.Update(map[string]*health.Endpoint{"a": good, "b": bad})
	a.expect(t, "the same update again", false, 2)
	r.Update(nil)
	b.expect(t, "no endpoint at all", false, 2)
	r.Eject(bad, false)
	b.expect(t, "an endpoint that is not there returns", false, 2)
}

func TestRPCsAreCountedByHowTheyEnd(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		given             string
		info              balancer.DoneInfo
		succeeded, failed uint64
	}{
		{"answered", balancer.DoneInfo{BytesReceived: true, BytesSent: true}, 1, 0},
		{"failed", balancer.DoneInfo{Err: errors.New("UNAVAILABLE"), BytesSent: true}, 0, 1},
		{"failed after a part of the answer", balancer.DoneInfo{Err: errors.New("INTERNAL"), BytesReceived: true}, 0, 1},
		{"picked again, as the connection had ended", balancer.DoneInfo{}, 0, 0},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			r, e := health.NewRegistry(), health.NewEndpoint()
			c := r.Connect("a", func() {})
			c.Count(tc.info) // Its endpoint is not known: of no use to anyone.
			r.Update(map[string]*health.Endpoint{"a": e})
			c.Count(tc.info)
			if s, f := e.Take(); s != tc.succeeded || f != tc.failed {
				t.Errorf("%d succeeded and %d failed, want %d and %d", s, f, tc.succeeded, tc.failed)
			}
			if s, f := e.Take(); s+f != 0 {
				t.Errorf("Take gave %d and %d again", s, f)
			}
		})
	}
}

// Connections that want no outlier detection have no Conn.
func TestNilConn(t *testing.T) {
	t.Parallel()
	var c *health.Conn
	c.Count(balancer.DoneInfo{BytesReceived: true})
	if c.Ejected() {
		t.Error("a nil Conn is ejected")
	}
	c.Close()
}

func TestAConnectionOutlivesItsEndpoint(t *testing.T) {
	t.Parallel()
	r, e := health.NewRegistry(), health.NewEndpoint()
	r.Update(map[string]*health.Endpoint{"a": e})
	c := connect(r, "a")
	r.Update(nil)
	c.Count(balancer.DoneInfo{BytesReceived: true})
	if s, f := e.Take(); s+f != 0 {
		t.Errorf("an endpoint that is gone counted %d and %d", s, f)
	}
	again := health.NewEndpoint()
	r.Update(map[string]*health.Endpoint{"a": again})
	c.Count(balancer.DoneInfo{BytesReceived: true})
	if s, _ := again.Take(); s != 1 {
		t.Errorf("the endpoint that came in its place counted %d, want 1", s)
	}
	r.Update(nil)
	c.Close()
	fresh := connect(r, "a")
	r.Update(map[string]*health.Endpoint{"a": again})
	r.Eject(again, true)
	fresh.expect(t, "a connection to the address later", true, 1)
}

// Update, Eject, Count and Connect come from goroutines of their own. The race
// detector looks on.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	const n = 200
	r, e := health.NewRegistry(), health.NewEndpoint()
	r.Update(map[string]*health.Endpoint{"a": e})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range n {
			r.Eject(e, i%2 == 0)
		}
	})
	wg.Go(func() {
		for range n {
			r.Update(map[string]*health.Endpoint{"a": e, "b": e})
			r.Update(map[string]*health.Endpoint{"a": e})
		}
	})
	for range 4 {
		wg.Go(func() {
			for range n {
				c := r.Connect("a", func() {})
				c.Count(balancer.DoneInfo{BytesReceived: true})
				c.Ejected()
				c.Close()
			}
		})
	}
	wg.Wait()
	if s, f := e.Take(); s != 4*n || f != 0 {
		t.Errorf("%d succeeded and %d failed, want %d and 0", s, f, 4*n)
	}
}
