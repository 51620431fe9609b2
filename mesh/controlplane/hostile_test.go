package controlplane_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

func TestOptions_MaxStreams(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
		s := startServer(t, controlplane.Options{MaxStreams: 4}) // half of which one peer has
		first, second := open(s), open(s)
		first.fence()
		second.fence()
		if err := open(s).end(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "Options.MaxStreams") {
			t.Errorf("a third stream ended with %v", err)
		}
		xdstest.NoError(t, first.stream.CloseSend())
		first.end()
		for ctx := testContext(t); len(s.control.Clients()) > 1; {
			if ctx.Err() != nil {
				t.Fatal("the stream has not ended")
			}
		}
		open(s).fence()
	})
}

// Clients that never read, subscribe to far too much, reject everything, lie about nonces and change
// their minds all the time. Another one is served as ever, and nothing is left of them.
func TestHostileClientsHarmNobody(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
		const limit, updates, acts = 500, 50, 20
		s := startServer(t, controlplane.Options{MaxSubscriptions: limit})
		var demands atomic.Int64
		s.store.OnDemand(eds, func(begun, ended []*controlplane.Demand) {
			demands.Add(int64(len(begun) - len(ended)))
			_, err := s.store.Update(func(tx *controlplane.Tx) {
				for _, d := range begun {
					tx.Answer(d, given(t, "1", d.Name, assignment(d.Name)))
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
		big := strings.Repeat("x", 1<<20)
		s.update(t, func(tx *controlplane.Tx) {
			for i := range 8 {
				tx.SetNamed(fmt.Sprintf("big-%d", i), nil, wrapperspb.String(big))
			}
			tx.SetNamed("version", nil, wrapperspb.String("0"))
		})
		honest := open(s)
		honest.identify("honest", custom, "version")
		honest.next()

		// Each acts so often for an update: a machine under load has no more to do. A client that does not read may not
		// learn that the server has ended its stream, and then it waits in Send.
		var turns []chan bool
		var hostile sync.WaitGroup
		loop := func(act func(i int) error) {
			turn := make(chan bool, updates*acts)
			turns = append(turns, turn)
			hostile.Go(func() {
				for i := 0; act(i) == nil && <-turn; i++ {
				}
			})
		}
		clients := []*client{open(s), open(s), open(s), open(s)}
		nonces, flapper, greedy, deaf := clients[0].adder(), clients[1].adder(), clients[2].adder(), clients[3].adder()
		loop(func(i int) error { return nonces("version", fmt.Sprintf("nonce-%d", i), "no") })
		loop(func(i int) error { return flapper(fmt.Sprintf("flap-%d", i%50), "", "") })
		loop(func(i int) error { return greedy(fmt.Sprintf("greedy-%d", i), "", "") })
		loop(func(i int) error { return deaf(fmt.Sprintf("big-%d", i%8), "", "") })

		for i := 1; i <= updates; i++ {
			for n := range acts * len(turns) {
				turns[n%len(turns)] <- true
			}
			s.update(t, func(tx *controlplane.Tx) { tx.SetNamed("version", nil, wrapperspb.String(fmt.Sprint(i))) })
			for r := honest.next(); !strings.HasSuffix(r.values[0], fmt.Sprint(i)); r = honest.next() {
			}
		}
		for _, c := range s.control.Clients() {
			n := 0
			for _, ts := range c.Types {
				n += len(ts.Names)
			}
			if n > limit {
				t.Errorf("client %d subscribes to %d names", c.ID, n)
			}
		}
		for i, c := range clients {
			c.cancel()
			close(turns[i])
		}
		hostile.Wait()
		s.conn.Close()
		for ctx := testContext(t); len(s.control.Clients()) > 0 || demands.Load() > 0; {
			if ctx.Err() != nil {
				t.Fatalf("%d streams and %d demands are left", len(s.control.Clients()), demands.Load())
			}
		}
	})
}

// adder returns a function that adds a name (of a type whose resources are big if its own is) or, with a nonce, rejects.
func (c *client) adder() func(name, nonce, rejected string) error {
	var names []string
	return func(name, nonce, rejected string) error {
		r := request{node: nodeOf("hostile"), typeURL: eds, names: []string{name}, answers: reply{nonce: nonce}, rejects: rejected}
		if strings.HasPrefix(name, "big") || name == "version" {
			r.typeURL = custom
		}
		flaps := strings.HasPrefix(name, "flap")
		switch {
		case c.delta && flaps:
			r.unsubscribe, names = names, r.names
		case !c.delta && !flaps && nonce == "":
			names = append(names, name)
			r.names = names
		}
		return c.send(r)
	}
}
