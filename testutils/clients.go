package testutils

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// ClientStatus is what a FakeServer knows of one stream of a client.
type ClientStatus struct {
	// Node is that of the stream's first request, nil before it or if that had none. It must not be changed.
	Node *corepb.Node
	// Delta says that the stream speaks delta; otherwise it speaks SotW.
	Delta bool
	// Types has an entry for each type that was requested, ordered by TypeURL.
	Types []TypeStatus
}

// TypeStatus is what a client subscribes to of one type, and how it took the last response.
type TypeStatus struct {
	TypeURL string
	// Locators are the subscriptions, ordered by name; "*" is the wildcard. Those of a client that subscribes
	// by names have no constraints.
	Locators []Locator
	// Sent is the version of the last response, empty if there was none.
	Sent string
	// Answered says that the client has accepted or rejected the last response.
	Answered bool
	// NACK is the error with which the client rejected the last response, nil if it did not.
	NACK *status.Status
}

// Locator is a name and the constraints that a client subscribes to it with (xRFC TP2).
type Locator struct {
	Name        string
	Constraints dynparam.Constraints
}

// Clients returns the status of the present streams in the order in which they began; none while the server
// is stopped.
func (f *FakeServer) Clients() (all []ClientStatus) {
	f.state.Look(func() { all = f.clients() })
	return all
}

// Await waits until the status of the clients satisfies ok, and returns it, or an error with the last one
// when the context ends. ok is called after every request and response.
func (f *FakeServer) Await(ctx context.Context, ok func([]ClientStatus) bool) (all []ClientStatus, err error) {
	for {
		changed := f.state.Next(func() { all = f.clients() })
		if ok(all) { // without a lock: it may use the server, or end the test
			return all, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return all, fmt.Errorf("the clients of the server are not as awaited, but %+v: %w", all, ctx.Err())
		}
	}
}

// clients returns the status of the streams. The caller holds f.state.
func (f *FakeServer) clients() (all []ClientStatus) {
	for _, st := range f.streams {
		all = append(all, st.status())
	}
	return all
}

func (st *stream) status() ClientStatus {
	c := ClientStatus{Node: st.node, Delta: st.delta}
	for _, ts := range st.types {
		t := ts.reply
		for _, sub := range ts.subscribed {
			constraints, _ := dynparam.FromProto(sub.constraints) // what cannot be used as constraints is none
			t.Locators = append(t.Locators, Locator{sub.name, constraints})
		}
		slices.SortFunc(t.Locators, func(a, b Locator) int {
			return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Constraints.Key(), b.Constraints.Key()))
		})
		c.Types = append(c.Types, t)
	}
	slices.SortFunc(c.Types, func(a, b TypeStatus) int { return strings.Compare(a.TypeURL, b.TypeURL) })
	return c
}
