package controlplane

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/typeurl"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// lateClient is a client, whose requests may be late, on a SotW stream that has the Listener a.
type lateClient struct {
	*sotw
	t     testing.TB
	nonce string
	got   []string
}

func newLateClient(t testing.TB, also ...string) *lateClient {
	store := NewStore()
	update(t, store, func(tx *Tx) {
		tx.Set(&listenerpb.Listener{Name: "a"}, &listenerpb.Listener{Name: "b"})
	})
	c := &lateClient{sotw: newTestSotW(store), t: t}
	for _, typeURL := range also {
		mustHandle(t, c.sotw, request(typeURL, "x"))
	}
	c.asksFor("a")
	c.gets("a")
	c.asksFor("a") // the ACK
	return c
}

// asksFor sends a request that answers the last response.
func (c *lateClient) asksFor(names ...string) {
	c.t.Helper()
	req := request(typeurl.Listener, names...)
	req.ResponseNonce = c.nonce
	mustHandle(c.t, c.sotw, req)
}

// receive takes what is due, and calls during with each response while it is being sent.
func (c *lateClient) receive(during func(*discoverypb.DiscoveryResponse)) {
	c.t.Helper()
	err := c.push(func(resp *discoverypb.DiscoveryResponse) error {
		during(resp)
		if resp.GetTypeUrl() != typeurl.Listener {
			return nil
		}
		c.nonce = resp.GetNonce()
		var names string
		for _, r := range resp.GetResources() {
			l := new(listenerpb.Listener)
			if err := proto.Unmarshal(r.GetValue(), l); err != nil {
				c.t.Fatal(err)
			}
			names += l.GetName()
		}
		c.got = append(c.got, names)
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// gets checks what the client is sent: the names of each response.
func (c *lateClient) gets(want ...string) {
	c.t.Helper()
	c.receive(func(*discoverypb.DiscoveryResponse) {})
	c.has(want...)
}

func (c *lateClient) has(want ...string) {
	c.t.Helper()
	if !slices.Equal(c.got, want) {
		c.t.Fatalf("got the Listeners %q, want %q", c.got, want)
	}
	c.got = nil
}

// A client takes a request for ignored if the next response is not for it (Envoy, xDS protocol, "ACK and NACK": "stale"). So
// none is made once a request counts as an answer to the last one, until it is carried out.
func TestSotW_NoResponseBetweenARequestAndItsChange(t *testing.T) {
	t.Parallel()
	c := newLateClient(t)
	c.hooks.allow = func(*corepb.Node, string, string) error {
		update(t, c.store, func(tx *Tx) { tx.Delete(typeurl.Listener, "a") })
		c.gets() // nothing yet
		return nil
	}
	c.asksFor("b")
	c.gets("b")
}

// A response that is made, and not sent yet, makes a request stale that does not answer it.
func TestSotW_RequestDuringAPushIsStale(t *testing.T) {
	t.Parallel()
	c := newLateClient(t, typeurl.Cluster)
	update(t, c.store, func(tx *Tx) {
		tx.Set(&clusterpb.Cluster{Name: "x"})
		tx.Delete(typeurl.Listener, "a")
	})
	c.receive(func(resp *discoverypb.DiscoveryResponse) {
		if resp.GetTypeUrl() == typeurl.Cluster { // the response with Listeners comes after it
			c.asksFor("b")
		}
	})
	c.has("")
	c.gets()
	c.asksFor("b")
	c.gets("b")
}

// Nothing is sent while the subscription to constraints changes, as they come first.
func TestSotW_NothingOvertakesConstraints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testNothingOvertakesConstraints)
}

func testNothingOvertakesConstraints(t *testing.T) {
	store, c := NewStore(), &lateClient{t: t}
	c.sotw = newTestSotW(store)
	dpds := func(n string) {
		update(t, store, func(tx *Tx) {
			tx.SetDPDS("d", func(*corepb.Node) (dynparam.ByType, error) { return dynparam.ByType{}, status.Error(codes.Internal, n) })
			tx.Set(&listenerpb.Listener{Name: n})
		})
	}
	receive := func(during func(*discoverypb.DiscoveryResponse)) {
		synctest.Wait()
		c.receive(during)
	}
	dpds("a")
	mustHandle(t, c.sotw, request(dynparam.MapTypeURL, "d"))
	c.asksFor("a", "b")
	var types []string
	note := func(resp *discoverypb.DiscoveryResponse) { types = append(types, resp.GetTypeUrl()) }
	receive(note)
	types = nil
	c.hooks.allow = func(*corepb.Node, string, string) error {
		dpds("b")
		receive(note)
		if types != nil {
			t.Errorf("responses for %v during the request, want none", types)
		}
		return nil
	}
	mustHandle(t, c.sotw, request(dynparam.MapTypeURL, "d", "e"))
	receive(note)
	if want := []string{dynparam.MapTypeURL, typeurl.Listener}; !slices.Equal(types, want) {
		t.Errorf("responses for %v, want %v", types, want)
	}
}

// A refresh during a call of the function counts: the client's answer is of the newest state.
func TestStore_RefreshDPDSDuringTheFunction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testRefreshDPDSDuringTheFunction)
}

func testRefreshDPDSDuringTheFunction(t *testing.T) {
	store := NewStore()
	p := newTestSotW(store)
	calls := 0
	update(t, store, func(tx *Tx) {
		tx.SetDPDS("d", func(*corepb.Node) (dynparam.ByType, error) {
			if calls++; calls == 1 {
				store.RefreshDPDS("d", nil)
			}
			return dynparam.ByType{}, status.Error(codes.Internal, fmt.Sprint(calls))
		})
	})
	mustHandle(t, p, request(dynparam.MapTypeURL, "d"))
	synctest.Wait()
	var got []string
	if err := p.push(func(resp *discoverypb.DiscoveryResponse) error {
		got = append(got, resp.GetResourceErrors()[0].GetErrorDetail().GetMessage())
		return nil
	}); err != nil || !slices.Equal(got, []string{"2"}) {
		t.Errorf("the client was sent %q, %v, want the second answer", got, err)
	}
}
