package lbtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// HealthServer is a server's health service as a connection sees it.
type HealthServer struct {
	grpc.ClientConnInterface

	mu      sync.Mutex
	watches []time.Time // when each began
	service string      // that the last one asked for
	last    *healthStream
	all     []*healthStream
}

type healthStream struct {
	grpc.ClientStream
	server  *HealthServer
	service string
	ctx     context.Context
	answers chan any // a status of health, or an error
}

// NewStream implements grpc.ClientConnInterface.
func (h *HealthServer) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	if method != healthpb.Health_Watch_FullMethodName {
		return nil, errors.New("called " + method)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watches = append(h.watches, time.Now())
	h.last = &healthStream{server: h, ctx: ctx, answers: make(chan any, 9)}
	h.all = append(h.all, h.last)
	return h.last, nil
}

// Served lists the services that open streams asked for.
func (h *HealthServer) Served() (services []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.all {
		if s.ctx.Err() == nil {
			services = append(services, s.service)
		}
	}
	return services
}

func (s *healthStream) SendMsg(m any) error {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.service = m.(*healthpb.HealthCheckRequest).GetService()
	s.server.service = s.service
	return nil
}

func (s *healthStream) CloseSend() error { return nil }

func (s *healthStream) RecvMsg(m any) error {
	select {
	case a := <-s.answers:
		if err, ok := a.(error); ok {
			return err
		}
		m.(*healthpb.HealthCheckResponse).Status = a.(healthpb.HealthCheckResponse_ServingStatus)
		return nil
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

// Say has the server answer on its last stream, and waits until that is dealt with.
func (h *HealthServer) Say(answers ...any) {
	h.mu.Lock()
	for _, a := range answers {
		h.last.answers <- a
	}
	h.mu.Unlock()
	synctest.Wait()
}

// Service returns the service that the last stream asked for.
func (h *HealthServer) Service() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.service
}

// Began returns when the streams began.
func (h *HealthServer) Began() []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.watches)
}

// Open reports whether the last stream is open.
func (h *HealthServer) Open() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last != nil && h.last.ctx.Err() == nil
}
