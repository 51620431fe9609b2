package demo

import (
	"context"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/scenario"
)

// stepCount is how many steps the demo has.
const stepCount = 5

// steps are the demo's. startTraffic lets the client begin with its RPCs.
func steps(m *mesh, startTraffic func()) []scenario.Step {
	return []scenario.Step{
		split(m, startTraffic),
		shift(m),
		stopBackend(m),
		moveMethod(m),
		moveClient(m),
	}
}

func split(m *mesh, startTraffic func()) scenario.Step {
	return scenario.Step{
		Name: "split 90/10",
		Announcement: `The control plane sends 90% of the RPCs to cluster "stable", which has two backends, ` +
			`and 10% to cluster "canary", which has one. The client makes its first RPCs.`,
		Do: func(context.Context) error {
			resources := append(fixedResources(m.address), routing{number: 1, stable: 90, canary: 10}.message())
			if err := m.push(resources...); err != nil {
				return err
			}
			startTraffic()
			return nil
		},
		Expect: scenario.Expectation{
			Configuration: 1,
			Groups: []scenario.Group{{
				Shares: map[string]float64{stable1: 0.45, stable2: 0.45, canary1: 0.10},
			}},
		},
	}
}

func shift(m *mesh) scenario.Step {
	return scenario.Step{
		Name: "shift to 50/50",
		Announcement: `While RPCs run, the control plane shifts the split: half of them for "stable", ` +
			`half for "canary". No RPC may fail, and none that follows the first on the new split may go by the old one.`,
		Do: func(context.Context) error {
			return m.push(routing{number: 2, stable: 50, canary: 50}.message())
		},
		Expect: scenario.Expectation{
			Configuration: 2,
			Groups: []scenario.Group{{
				Shares: map[string]float64{stable1: 0.25, stable2: 0.25, canary1: 0.50},
			}},
		},
	}
}

func stopBackend(m *mesh) scenario.Step {
	addr := m.address(stable2)
	afterLoss := func(r scenario.RPC) bool {
		at, lost := m.connections.lostAt(addr)
		return lost && r.Start.After(at)
	}
	return scenario.Step{
		Name: "stop a backend",
		Announcement: `Backend stable-2 dies, and nobody tells the control plane. RPCs that are on its connection at ` +
			`that moment may fail; every later one has to be answered, by stable-1 in its place.`,
		Do: func(context.Context) error {
			m.backends[stable2].Stop()
			return nil
		},
		Expect: scenario.Expectation{
			Configuration: 2,
			Shows:         afterLoss,
			Groups: []scenario.Group{{
				Shares: map[string]float64{stable1: 0.50, canary1: 0.50},
			}},
			Excuses: func(r scenario.RPC) bool { return r.Peer == addr && !afterLoss(r) },
		},
	}
}

func moveMethod(m *mesh) scenario.Step {
	return scenario.Step{
		Name: "move a method",
		Announcement: `The control plane moves one method, EmptyCall, to cluster "canary" for good. ` +
			`The other methods keep their split.`,
		Do: func(context.Context) error {
			return m.push(routing{number: 3, stable: 50, canary: 50, moved: emptyCall}.message())
		},
		Expect: scenario.Expectation{
			Configuration: 3,
			Groups: []scenario.Group{
				{Methods: []string{emptyCall}, Shares: map[string]float64{canary1: 1}},
				{Methods: []string{unaryCall, fullDuplexCall}, Shares: map[string]float64{stable1: 0.50, canary1: 0.50}},
			},
		},
	}
}
