package conns

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/retries"
)

var logger = boundlog.Component("dynxds")

// healthCheck asks the server behind a Conn for its health, by Watch of gRPC's health service
// (gRFC A17), as long as the policy listens to the Conn's health.
type healthCheck struct {
	conn    *Conn
	service string
	ctx     context.Context
	cancel  context.CancelFunc

	// latest is the health, and answer the text of the last answer, or "". Guarded by Pool.mu.
	latest balancer.SubConnState
	answer string
}

// checksHealthLocked reports whether connections have health checks.
func (r *Registry) checksHealthLocked() bool { return r.config.HealthCheck != nil && !r.NoHealthChecks }

// checkLocked starts the health check of the cluster for the connection, if there is one and the policy
// listens. Until the first answer, the health is first.
func (c *Conn) checkLocked(first balancer.SubConnState) {
	c.stopCheckLocked()
	if !c.registry.checksHealthLocked() || c.healthListener == nil {
		return
	}
	h := &healthCheck{conn: c, service: c.registry.config.HealthCheck.Service, latest: first}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	c.check = h
	c.health.Store(int32(first.ConnectivityState))
	c.registry.Pool.afterLocked(h.start)
}

// start begins the check. gRPC ends the producer with the connection. The Conn ends the check before that.
func (h *healthCheck) start() {
	_, closeProducer := h.conn.SubConn.GetOrBuildProducer(h)
	context.AfterFunc(h.ctx, closeProducer)
}

// stopCheckLocked ends the health check, if there is one.
func (c *Conn) stopCheckLocked() {
	if c.check != nil {
		c.check.cancel()
		c.check = nil
		c.health.Store(int32(connectivity.Ready))
	}
}

// settleCheck is called when the policy knows of a READY connection, which has its health check now if the policy listens to that.
func (c *Conn) settleCheck() {
	c.registry.Pool.mu.Lock()
	if c.check == nil {
		c.health.Store(int32(connectivity.Ready))
	}
	c.registry.Pool.unlock()
	c.registry.notify()
}

// recheckLocked starts the health check that the cluster has now, or none. The health of the connection stays as it is until
// the new check has an answer.
func (c *Conn) recheckLocked() {
	first := balancer.SubConnState{ConnectivityState: connectivity.Ready}
	if c.check != nil {
		first = c.check.latest
	}
	c.checkLocked(first)
	c.reportHealthLocked()
}

// Build implements balancer.ProducerBuilder.
func (h *healthCheck) Build(conn any) (balancer.Producer, func()) {
	go h.run(healthpb.NewHealthClient(conn.(grpc.ClientConnInterface)))
	return nil, h.cancel
}

// run watches until the check is over, or it is clear that the server has no health service.
func (h *healthCheck) run(client healthpb.HealthClient) {
	failures := 0 // in a row
	for {
		begin := time.Now()
		answered, err := h.watch(client)
		switch {
		case h.ctx.Err() != nil:
			return
		case status.Code(err) == codes.Unimplemented:
			logger.Errorf("the server at %s has no health service (grpc.health.v1.Health/Watch), which health_checks of cluster %q asks for; it counts as healthy: %v",
				h.conn.address, h.conn.registry.Cluster, err)
			h.report("UNIMPLEMENTED", connectivity.Ready, nil)
			return
		}
		h.report("failed", connectivity.TransientFailure, fmt.Errorf("its health check has failed: %w", err))
		if answered {
			failures = 0
		}
		// A stream with an answer is followed by another one at once, unless it was so short that
		// a server could keep the client busy with it.
		if !answered || time.Since(begin) < backoff.DefaultConfig.BaseDelay {
			if retries.Wait(h.ctx, retries.After(failures, backoff.DefaultConfig)) != nil {
				return
			}
			failures++
		}
		h.report("connecting", connectivity.Connecting, nil)
	}
}

// watch reports the health until the stream ends.
func (h *healthCheck) watch(client healthpb.HealthClient) (answered bool, err error) {
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{Service: h.service})
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
			h.report(health, connectivity.Ready, nil)
		} else {
			h.report(health, connectivity.TransientFailure, fmt.Errorf("its health check for service %q says %s", h.service, health))
		}
	}
}

// report gives the policy the health of the server, unless the check is over.
func (h *healthCheck) report(answer string, state connectivity.State, err error) {
	c, r := h.conn, h.conn.registry
	r.Pool.mu.Lock()
	if c.check != h {
		r.Pool.unlock()
		return
	}
	h.latest, h.answer = balancer.SubConnState{ConnectivityState: state, ConnectionError: err}, answer
	c.health.Store(int32(state))
	c.reportHealthLocked()
	r.Pool.unlock()
	r.notify()
}
