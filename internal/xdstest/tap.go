package xdstest

import (
	"strings"

	"google.golang.org/grpc"
)

const (
	adsMethods  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
	dpdsMethods = "/envoy.service.dynamic_parameters.v3.DynamicParametersDiscoveryService/"
)

// Tap stands between an xDS server and its clients: it records requests (Recorder) and injects faults
// (Faults). Both apply to ADS and DPDS streams, and outlive the server. It is safe for concurrent use.
type Tap struct {
	*Recorder
	*Faults
}

// NewTap returns a Tap without faults. Its Intercept must be an interceptor of the gRPC server.
func NewTap() *Tap { return &Tap{newRecorder(), newFaults()} }

// Intercept is a grpc.StreamServerInterceptor. It runs the handler of a stream until BreakStreams. gRPC
// ends the stream when Intercept returns, which ends the handler too; whoever stops the server waits for it.
func (t *Tap) Intercept(srv any, wire grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	method := info.FullMethod
	if !strings.HasPrefix(method, adsMethods) && !strings.HasPrefix(method, dpdsMethods) {
		return handler(srv, wire)
	}
	st, err := t.begin(wire, t.Recorder)
	t.began(err == nil)
	if err != nil {
		return err
	}
	defer t.ended()
	defer t.end(st)
	ended := make(chan error, 1)
	go func() { ended <- handler(srv, st) }()
	select {
	case err := <-ended:
		return err
	case err := <-st.broken:
		return err
	}
}
