package demo

import (
	"context"
	"sync/atomic"
	"time"
)

// stepCount is the number of the demo's steps.
const stepCount = 5

// steps returns the demo's steps.
func steps(m *mesh) []step {
	address := m.backends[stable2].Addr()
	var stopped atomic.Pointer[time.Time] // when the backend has ended its connections
	afterStop := func(r rpc) bool {
		at := stopped.Load()
		return at != nil && r.start.After(*at)
	}
	halves := group{[]string{unaryCall, fullDuplexCall}, map[string]float64{stable1: 0.50, canary1: 0.50}}
	moved := group{[]string{emptyCall}, map[string]float64{canary1: 1}}
	return []step{{
		name: "split 90/10",
		text: `The control plane sends 90% of the RPCs to cluster "stable", which has two backends, ` +
			`and 10% to cluster "canary", which has one. The client makes its first RPCs.`,
		do: func(context.Context) error {
			err := m.push(append(m.fixedResources(), routes(1, 90, 10, ""))...)
			m.traffic.start(m.channel)
			return err
		},
		expect: expectation{
			configuration: 1,
			groups:        []group{{shares: map[string]float64{stable1: 0.45, stable2: 0.45, canary1: 0.10}}},
		},
	}, {
		name: "shift to 50/50",
		text: `While RPCs run, the control plane shifts the split: half of them for "stable", ` +
			`half for "canary". No RPC may fail, and none that follows the first on the new split may go by the old one.`,
		do: m.pushes(routes(2, 50, 50, "")),
		expect: expectation{
			configuration: 2,
			groups:        []group{{shares: map[string]float64{stable1: 0.25, stable2: 0.25, canary1: 0.50}}},
		},
	}, {
		name: "stop a backend",
		text: `Backend stable-2 dies, and the control plane is not notified. RPCs that are on its connection at ` +
			`that moment may fail; every later one has to be answered, by stable-1 in its place.`,
		do: func(context.Context) error {
			m.backends[stable2].Stop()
			now := time.Now()
			stopped.Store(&now)
			return nil
		},
		expect: expectation{
			configuration: 2,
			shows:         afterStop,
			groups:        []group{{shares: halves.shares}},
			// It accepts no other connection: these RPCs are on the one that broke.
			excuses: func(r rpc) bool { return r.peer == address },
		},
	}, {
		name: "move a method",
		text: `The control plane moves one method, EmptyCall, to cluster "canary" for good. ` +
			`The other methods keep their split.`,
		do:     m.pushes(routes(3, 50, 50, emptyCall)),
		expect: expectation{configuration: 3, groups: []group{moved, halves}},
	}, {
		name: "move a client",
		text: `Two more clients, alice and bob, dial the same service by dynamic parameters: the control plane sends ` +
			`each the constraints that select its variant of the Listener, and the RPCs of both go through proxy-1. ` +
			`Then it sends alice others: hers alone go to "stable" directly. No RPC may fail.`,
		do: m.moveAlice,
		expect: expectation{
			configuration: directConfiguration,
			about:         func(r rpc) bool { return r.method == alice },
			groups: []group{
				{[]string{alice}, map[string]float64{stable1: 1}}, {[]string{bob}, map[string]float64{proxy1: 1}}, moved, halves,
			},
		},
	}}
}
