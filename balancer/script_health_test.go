package balancer_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// healthServer is a server's health service as a connection sees it.
type healthServer struct {
	grpc.ClientConnInterface

	mu      sync.Mutex
	streams []*healthStream
}

type healthStream struct {
	grpc.ClientStream
	server  *healthServer
	began   time.Time
	service string
	ctx     context.Context
	answers chan any // a status of health, or an error
}

// NewStream implements grpc.ClientConnInterface.
func (h *healthServer) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	if method != healthpb.Health_Watch_FullMethodName {
		return nil, errors.New("called " + method)
	}
	s := &healthStream{server: h, began: time.Now(), ctx: ctx, answers: make(chan any, 9)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams = append(h.streams, s)
	return s, nil
}

func (s *healthStream) SendMsg(m any) error {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.service = m.(*healthpb.HealthCheckRequest).GetService()
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

// Answer sends answers on the last stream, and waits until they are dealt with.
func (h *healthServer) Answer(answers ...any) {
	h.mu.Lock()
	for _, a := range answers {
		h.streams[len(h.streams)-1].answers <- a
	}
	h.mu.Unlock()
	synctest.Wait()
}

// Open lists the services that open streams asked for.
func (h *healthServer) Open() (services []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.streams {
		if s.ctx.Err() == nil {
			services = append(services, s.service)
		}
	}
	return services
}

// Began returns when the streams began.
func (h *healthServer) Began() (times []time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.streams {
		times = append(times, s.began)
	}
	return times
}

// answer has a server answer its health check.
func (s *script) answer(name, health string) {
	if value, ok := healthpb.HealthCheckResponse_ServingStatus_value[health]; ok {
		s.server(name + ":1").Answer(healthpb.HealthCheckResponse_ServingStatus(value))
		return
	}
	var code codes.Code
	if err := code.UnmarshalJSON([]byte(strconv.Quote(health))); err != nil {
		s.server(name + ":1").Answer(errors.New(health))
		return
	}
	s.server(name + ":1").Answer(status.Error(code, "not now"))
}

func (s *script) server(addr string) *healthServer {
	if s.servers[addr] == nil {
		s.servers[addr] = new(healthServer)
	}
	return s.servers[addr]
}
