package loopback

import (
	"net"
	"sync"

	"google.golang.org/grpc"
)

// Server is a gRPC server at an address of its own, where it stops and starts again. It is safe for
// concurrent use.
type Server struct {
	addr  *Address
	start func() Run
	wrap  func(net.Listener) net.Listener

	// life serialises starts and stops.
	life sync.Mutex
	// run is nil while the server is stopped; serving is its Serve.
	run     *Run
	serving sync.WaitGroup
}

// Run is a gRPC server between a start and a stop.
type Run struct {
	// GRPC has its services registered, and does not serve yet.
	GRPC *grpc.Server
	// EndStreams ends the streams of the services and waits for them, so that GracefulStop does not wait
	// for clients.
	EndStreams func()
}

// StartServer reserves an address and serves there what start returns; start is called again by each
// Restart. wrap, unless it is nil, puts something between the network and the server. The caller must
// Close the server.
func StartServer(start func() Run, wrap func(net.Listener) net.Listener) (*Server, error) {
	addr, err := Reserve()
	if err != nil {
		return nil, err
	}
	s := &Server{addr: addr, start: start, wrap: wrap}
	if err := s.Restart(); err != nil {
		addr.Release()
		return nil, err
	}
	return s, nil
}

// Addr returns "127.0.0.1:port". It stays the same across restarts.
func (s *Server) Addr() string { return s.addr.String() }

// Stop ends every connection and RPC at once, as a crash does, and stops listening: connections are
// refused until Restart. It does nothing if the server is stopped.
func (s *Server) Stop() {
	s.stop(func(run *Run) {
		run.GRPC.Stop()
		run.EndStreams()
	})
}

// GracefulStop ends the streams that last, sends GOAWAY, and returns when the RPCs in flight have ended.
func (s *Server) GracefulStop() {
	s.stop(func(run *Run) {
		run.EndStreams()
		run.GRPC.GracefulStop()
	})
}

func (s *Server) stop(how func(*Run)) {
	s.life.Lock()
	defer s.life.Unlock()
	if s.run == nil {
		return
	}
	how(s.run)
	s.serving.Wait()
	s.run = nil
}

// Restart listens on the same address again. It stops the server first if it is running.
func (s *Server) Restart() error {
	s.Stop()
	s.life.Lock()
	defer s.life.Unlock()
	listener, err := s.addr.Listen()
	if err != nil {
		return err
	}
	if s.wrap != nil {
		listener = s.wrap(listener)
	}
	run := s.start()
	// Serve returns nil after Stop. If the listener fails, connections are refused.
	s.serving.Go(func() { _ = run.GRPC.Serve(listener) })
	s.run = &run
	return nil
}

// Close stops the server and releases its address.
func (s *Server) Close() {
	s.Stop()
	s.addr.Release()
}
