package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/service"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/admission"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/quota"
	"github.com/dynxds/dynxds/mesh/internal/repeatlog"
	"github.com/dynxds/dynxds/mesh/internal/webpage"
)

// ADSService is the service name of health checks, beside "" for the server as a whole.
const ADSService = "envoy.service.discovery.v3.AggregatedDiscoveryService"

// Service is what a Server serves: a controlplane.Server, for one. Close ends its streams.
type Service interface {
	Register(grpc.ServiceRegistrar)
	Overview() []controlplane.ClientStatus
	Close()
}

// Server is the gRPC server of a control plane. It listens, and serves once Serve is called.
type Server struct {
	opts     Options
	id       string
	listener net.Listener
	grpc     *grpc.Server
	ads      Service
	health   *health.Server
	// others are the streams of other services than ADS.
	others *quota.Quota[string]
	// ready says that there is something to serve.
	ready atomic.Bool
	// release releases the credentials.
	release func()
	// open are the pages for operators; admin is one of them, or nil.
	open  []*webpage.Page
	admin *webpage.Page
}

// New listens. It fails if the options contradict each other, a certificate file is invalid, or the
// address is not available. The caller must call Serve or Close.
func New(ads Service, opts Options) (*Server, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	creds, release, err := opts.transportCredentials()
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	listener, err := listen(opts.Listen)
	if err != nil {
		release()
		return nil, err
	}
	s := &Server{opts: opts, id: newID(), listener: listener, ads: ads, health: health.NewServer(), release: release}
	s.others = quota.New[string]("streams", int64(opts.MaxStreams))
	gate := admission.New(admission.Options{
		Connections: opts.Connections, MessageBytes: opts.RequestBytes, MessageTime: bounds.MessageTime, OnRefused: s.refusedConnection,
		OnFailed: s.failedHandshake,
	})
	s.listener = gate.Listen(listener)
	if err := s.openPages(); err != nil {
		listener.Close()
		release()
		return nil, err
	}
	watched := []grpc.ServerOption{}
	if opts.Metrics != nil && len(s.open) > 0 {
		opts.Metrics.AddClients(ads.Overview)
		watched = append(watched, grpc.StatsHandler(opts.Metrics.StatsHandler()))
	}
	s.grpc = grpc.NewServer(append(watched,
		grpc.Creds(gate.Credentials(creds)),
		grpc.ConnectionTimeout(bounds.HandshakeTime),
		grpc.MaxHeaderListSize(bounds.HeaderBytes),
		// Requests have lists of names, which grow with the mesh; gRPC's default of 4 MiB is about 40,000 names.
		grpc.MaxRecvMsgSize(opts.RequestBytes),
		grpc.MaxConcurrentStreams(bounds.StreamsPerConnection),
		grpc.ChainStreamInterceptor(s.logged, s.admit),
		// Detect clients that vanish, and tolerate clients that ping more often than most. gRPC adds a tenth to the age, or takes
		// it away, at random for each connection.
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: 30 * time.Second, Timeout: 20 * time.Second, MaxConnectionIdle: bounds.IdleTime,
			MaxConnectionAge: opts.MaxConnectionAge, MaxConnectionAgeGrace: opts.Grace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	)...)
	s.register()
	return s, nil
}

// unixPrefix starts an address that is the path of a Unix domain socket, as in gRPC's targets.
const unixPrefix = "unix:"

// listen listens on a TCP address, or on a Unix domain socket.
func listen(address string) (net.Listener, error) {
	path, local := strings.CutPrefix(address, unixPrefix)
	if address == "" || local && strings.TrimPrefix(path, "//") == "" {
		return nil, exit.Usagef("--listen %q: want HOST:PORT or unix:PATH", address)
	}
	network, way := "tcp", "end the process that has it, or use another port"
	if local {
		network, address = "unix", strings.TrimPrefix(path, "//")
		way = "end the process that has it, remove what is no socket, or use another path, with fewer than 104 bytes"
		removeDeadSocket(address)
	}
	l, err := net.Listen(network, address)
	if errors.Is(err, syscall.EADDRINUSE) || local && errors.Is(err, syscall.EINVAL) { // EINVAL: the path is too long
		return nil, fmt.Errorf("--listen %s: %w; %s", address, err, way)
	}
	if err != nil {
		err = fmt.Errorf("--listen %s: %w", address, err)
	}
	if malformed := (*net.AddrError)(nil); errors.As(err, &malformed) {
		return nil, exit.With(exit.Usage, err)
	}
	return l, err
}

// removeDeadSocket removes the socket of a process that has ended without doing so.
func removeDeadSocket(path string) {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		os.Remove(path) // if it fails, so does listening, which says why
	}
}

func (s *Server) register() {
	s.ads.Register(s.grpc)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	if !s.opts.NoChannelz {
		channelz.RegisterChannelzServiceToServer(s.grpc)
	}
	if !s.opts.NoReflection {
		reflection.Register(s.grpc)
	}
	s.SetReady(false)
}

// Addr returns the server's address.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// SetReady sets the status of the health service. A new server is not ready: it has no streams but those of health and
// reflection.
func (s *Server) SetReady(ready bool) {
	s.ready.Store(ready)
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
	s.health.SetServingStatus(ADSService, status)
}

// Serve serves until the context ends, and then drains: health is NOT_SERVING, ADS streams end with
// UNAVAILABLE so that clients use another server, and RPCs that remain after Options.Grace are cancelled.
// It returns nil after a drain.
func (s *Server) Serve(ctx context.Context) error {
	defer s.release()
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		s.drain()
	})
	err := s.grpc.Serve(s.listener)
	if stop() {
		// The listener failed.
		s.drain()
		return fmt.Errorf("serving %s: %w", s.Addr(), err)
	}
	<-drained
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Close closes a server that Serve was not called on.
func (s *Server) Close() {
	s.drain()
	s.listener.Close()
	s.release()
}

func (s *Server) drain() {
	s.health.Shutdown()
	s.ads.Close()
	cut := time.AfterFunc(s.opts.Grace, func() {
		s.opts.Log.Warn("drain: closing the remaining streams", "after", s.opts.Grace)
		s.grpc.Stop()
	})
	defer cut.Stop()
	s.grpc.GracefulStop()
	s.closePages()
	repeatlog.Flush(s.opts.Log)
}
