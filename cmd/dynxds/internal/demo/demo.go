package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/report"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/scenario"
)

const (
	// DefaultDuration is how long the demo runs unless told otherwise.
	DefaultDuration = 15 * time.Second
	// MinDuration leaves each step time for RPCs enough on most machines.
	MinDuration = 2 * time.Second
)

// patience is how much longer than planned a step may take.
const patience = 20 * time.Second

// Options are what a user chooses.
type Options struct {
	// Duration is how long the demo runs, at least MinDuration. It is divided
	// evenly among the steps; a slow machine may need longer.
	Duration time.Duration
}

// Run runs the demo and tells r about it. It returns nil only if every step was
// observed and no RPC failed that should not have. It sets the process's
// GRPC_XDS_BOOTSTRAP while it runs, so only one may run at a time.
func Run(ctx context.Context, opts Options, r report.Reporter) error {
	if opts.Duration < MinDuration {
		return fmt.Errorf("--duration %v is too short: the %d steps need %v or more", opts.Duration, stepCount, MinDuration)
	}
	return run(ctx, opts, r, patience, steps)
}

// run is Run with what tests vary.
func run(ctx context.Context, opts Options, r report.Reporter, patience time.Duration, list func(*mesh, func()) []scenario.Step) error {
	m, err := startMesh()
	if err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	defer m.close()
	r.SetUp(m.describe(opts.Duration))

	var (
		recorder = scenario.NewRecorder()
		clients  []*traffic
	)
	m.startFurther = func(name string, channel grpc.ClientConnInterface) {
		clients = append(clients, startFurtherTraffic(ctx, channel, name, recorder.Record))
	}
	all := list(m, func() { clients = append(clients, startTraffic(ctx, m.channel, recorder.Record)) })
	err = scenario.Run(ctx, scenario.Config{
		Steps:    all,
		Backends: m.backendNames(),
		Recorder: recorder,
		StepTime: opts.Duration / time.Duration(len(all)),
		Patience: patience,
		Every:    r.Interval(),
		Observer: r,
		Stop: func() {
			for _, client := range clients {
				client.stop()
			}
		},
	})
	return m.explain(err)
}

// explain adds to an error what the control plane knows.
func (m *mesh) explain(err error) error {
	if rejections := m.rejections(); err != nil && len(rejections) > 0 {
		return fmt.Errorf("%w; %s", err, strings.Join(rejections, "; "))
	}
	return err
}

func (m *mesh) backendNames() []string {
	var names []string
	for _, c := range clusters() {
		names = append(names, c.backends...)
	}
	return names
}

func (m *mesh) describe(duration time.Duration) report.SetUp {
	s := report.SetUp{
		Target: target, Bootstrap: m.bootstrap, ControlPlane: m.planeAt,
		Methods: append(methods(), alice, bob), Duration: duration,
	}
	for _, c := range clusters() {
		for _, b := range c.backends {
			s.Backends = append(s.Backends, report.Backend{Name: b, Cluster: c.name, Address: m.address(b)})
		}
	}
	return s
}
