package leaf

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/boundlog"
)

var logger = boundlog.Component("dynxds")

// Health is what sessions know of the health of a server: they do not use the health that is
// reported to the policy.
type Health int32

const (
	// Serving: the server is healthy, or is not asked.
	Serving Health = iota
	// Awaited: the server is asked, and has not answered yet.
	Awaited
	// NotServing: it has reported that it is not healthy, or the check has failed.
	NotServing
)

// healthOf returns what a state of a health check is to sessions.
func healthOf(s connectivity.State) Health {
	switch s {
	case connectivity.Ready:
		return Serving
	case connectivity.TransientFailure:
		return NotServing
	default:
		return Awaited
	}
}

// healthCheck asks the server behind a SubConn for its health, by Watch of gRPC's health service
// (gRFC A17), as long as the policy listens to the SubConn's health.
type healthCheck struct {
	sc      *SubConn
	service string
	ctx     context.Context
	cancel  context.CancelFunc
}

// checkHealth starts the health check of the cluster, if it has one and the policy listens. Until
// the first answer, the health is first.
func (s *SubConn) checkHealth(first balancer.SubConnState) {
	service, ok := s.env.Endpoints.HealthCheck()
	if !ok || s.env.NoHealthChecks {
		return
	}
	c := &healthCheck{sc: s, service: service}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	if s.listener == nil {
		s.mu.Unlock()
		c.cancel()
		return
	}
	s.stopCheckLocked() // one that another goroutine has started meanwhile
	s.check, s.checked = c, first
	s.health.Store(int32(healthOf(first.ConnectivityState)))
	s.mu.Unlock()
	// gRPC ends the producer with the connection. The SubConn ends the check before that.
	_, closeProducer := s.SubConn.GetOrBuildProducer(c)
	context.AfterFunc(c.ctx, closeProducer)
	if latest, ok := s.env.Endpoints.HealthCheck(); ok && latest == service {
		return
	}
	s.mu.Lock() // It has changed meanwhile.
	current := s.check == c
	if current {
		s.stopCheckLocked()
	}
	s.mu.Unlock()
	if current {
		s.checkHealth(first)
	}
}

// stopCheckLocked ends the health check, if there is one.
func (s *SubConn) stopCheckLocked() {
	if s.check != nil {
		s.check.cancel()
		s.check = nil
		s.health.Store(int32(Serving))
	}
}

// awaitCheck is called before it is known that the SubConn is READY. If the cluster has a health check,
// no session uses the SubConn until settleCheck, by when the policy has started the check, or does
// not listen. It reports whether settleCheck has to be called.
func (s *SubConn) awaitCheck() bool {
	_, ok := s.env.Endpoints.HealthCheck()
	if ok = ok && !s.env.NoHealthChecks; ok {
		s.health.Store(int32(Awaited))
	}
	return ok
}

func (s *SubConn) settleCheck() {
	s.mu.Lock()
	if s.check == nil {
		s.health.Store(int32(Serving))
	}
	s.mu.Unlock()
	s.endpoint.HealthChanged()
}

// HealthCheckChanged implements endpoints.SubConn. The health stays as it is until the new check
// has an answer.
func (s *SubConn) HealthCheckChanged() {
	s.mu.Lock()
	state := s.reported
	if s.check != nil {
		state = s.checked
	}
	s.stopCheckLocked()
	s.mu.Unlock()
	s.endpoint.SetHealthCheck("")
	s.checkHealth(state)
	s.endpoint.HealthChanged()
	s.reportHealth()
}

// Health returns the health of the server. It takes no lock.
func (s *SubConn) Health() Health { return Health(s.health.Load()) }

// Build implements balancer.ProducerBuilder.
func (c *healthCheck) Build(conn any) (balancer.Producer, func()) {
	go c.run(healthpb.NewHealthClient(conn.(grpc.ClientConnInterface)))
	return nil, c.cancel
}

// run watches until the check is over, or it is clear that the server has no health service.
func (c *healthCheck) run(client healthpb.HealthClient) {
	config := backoff.DefaultConfig
	pause := config.BaseDelay
	for {
		begin := time.Now()
		answered, err := c.watch(client)
		switch {
		case c.ctx.Err() != nil:
			return
		case status.Code(err) == codes.Unimplemented:
			logger.Errorf("the server at %s has no health service (grpc.health.v1.Health/Watch), which health_checks of cluster %q asks for; it counts as healthy: %v",
				c.sc.Address(), c.sc.env.Cluster, err)
			c.report("UNIMPLEMENTED", connectivity.Ready, nil)
			return
		}
		c.report("failed", connectivity.TransientFailure, fmt.Errorf("its health check has failed: %w", err))
		if answered {
			pause = config.BaseDelay
		}
		// A stream with an answer is followed by another one at once, unless it was so short that
		// a server could keep the client busy with it.
		if !answered || time.Since(begin) < config.BaseDelay {
			if !c.wait(pause) {
				return
			}
			pause = min(time.Duration(float64(pause)*config.Multiplier), config.MaxDelay)
		}
		c.report("connecting", connectivity.Connecting, nil)
	}
}

// wait returns false if the check is over before the pause, which is made 20 % shorter or longer.
func (c *healthCheck) wait(pause time.Duration) bool {
	t := time.NewTimer(time.Duration(float64(pause) * (1 + backoff.DefaultConfig.Jitter*(2*rand.Float64()-1))))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// watch reports the health until the stream ends.
func (c *healthCheck) watch(client healthpb.HealthClient) (answered bool, err error) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{Service: c.service})
	if err != nil {
		return false, err
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return answered, err
		}
		answered = true
		health := response.GetStatus().String()
		if response.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			c.report(health, connectivity.Ready, nil)
		} else {
			c.report(health, connectivity.TransientFailure, fmt.Errorf("its health check for service %q says %s", c.service, health))
		}
	}
}

// report gives the policy the health of the server, unless the check is over.
func (c *healthCheck) report(health string, state connectivity.State, err error) {
	s := c.sc
	s.mu.Lock()
	if s.check != c {
		s.mu.Unlock()
		return
	}
	s.checked = balancer.SubConnState{ConnectivityState: state, ConnectionError: err}
	s.health.Store(int32(healthOf(state)))
	s.mu.Unlock()
	s.endpoint.SetHealthCheck(health)
	s.endpoint.HealthChanged()
	s.reportHealth()
}
