// Package sidechannel is what HTTP filters share that ask a service about RPCs: how a configuration names the
// service, the channel to it, and headers in messages (gRFC A102).
//
// It does not know what the services are asked.
package sidechannel

import (
	"context"
	"errors"
	"runtime"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/refpool"
)

// Service is a valid GrpcService. It is immutable.
type Service struct {
	target   string
	service  httpfilter.Service // nil: the configuration was read without a client
	timeout  time.Duration      // of a call; 0: none
	metadata metadata.MD        // of calls
}

// Parse reads a GrpcService (gRFC A102, "GrpcService Proto Validation"). services is nil without a client: then the
// service cannot be called.
func Parse(at *faults.Path, pb *corepb.GrpcService, services httpfilter.Services, found *faults.Faults) *Service {
	s := &Service{target: pb.GetGoogleGrpc().GetTargetUri(), timeout: pb.GetTimeout().AsDuration(), metadata: metadata.MD{}}
	google := at.Field("google_grpc")
	switch {
	case pb == nil:
		found.Addf(at, "must be set, as http_service is not supported")
	case pb.GetGoogleGrpc() == nil:
		found.Addf(google, "must be set, as envoy_grpc is not supported")
	case services != nil:
		var err error
		if s.service, err = services(pb.GetGoogleGrpc()); err != nil {
			found.Addf(nil, "%v.%v", google, err)
		}
	case s.target == "":
		found.Addf(google.Field("target_uri"), "must not be empty")
	}
	if t := pb.GetTimeout(); t != nil && (t.CheckValid() != nil || s.timeout <= 0) {
		found.Addf(at.Field("timeout"), "must be a valid duration above 0")
	}
	for i, header := range pb.GetInitialMetadata() {
		value, err := read(header)
		if err != nil {
			found.Addf(at.Item("initial_metadata", i), "%v", err)
		}
		s.metadata.Append(header.GetKey(), value)
	}
	return s
}

// Target is the service's, as gRPC dials it.
func (s *Service) Target() string { return s.target }

// connections has the connections that Channels use, by the key of the service.
var connections refpool.Pool[string, *grpc.ClientConn]

// Channel calls a service. Channels to equal services with equal credentials share a connection, which is closed some
// time after the last of these Channels is gone, when the garbage collector has noticed. It is safe for concurrent use.
type Channel struct {
	*Service
	connection *grpc.ClientConn
}

// Open returns a Channel. It does not connect.
func (s *Service) Open() (*Channel, error) {
	if s.service == nil {
		return nil, errors.New("the configuration was read without a bootstrap, which says how to call its service")
	}
	connection, release, err := connections.Acquire(s.service.Key(), s.dial)
	if err != nil {
		return nil, err
	}
	c := &Channel{s, connection}
	runtime.AddCleanup(c, func(release func()) { go release() }, release)
	return c, nil
}

func (s *Service) dial() (*grpc.ClientConn, func(), error) {
	options, release, err := s.service.DialOptions()
	if err != nil {
		return nil, nil, err
	}
	connection, err := grpc.NewClient(s.target, options...)
	if err != nil {
		release()
		return nil, nil, err
	}
	return connection, func() {
		connection.Close()
		release()
	}, nil
}

// maxDepth bounds how many calls may cause one another: the channel to a service may itself have filters that ask a
// service, even the same one.
const maxDepth = 4

type depthKey struct{}

// Invoke calls a method for an RPC with the context ctx. The call has the RPC's deadline, if its own is not earlier, and
// trace context, and none of its metadata.
func (c *Channel) Invoke(ctx context.Context, method string, request, reply any) error {
	ctx, cancel, err := c.call(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	err = c.connection.Invoke(ctx, method, request, reply)
	runtime.KeepAlive(c) // or the connection might be closed
	return Bounded(err)
}

// Bounded returns the error of a call with the service's text cut and printable, or nil for nil.
func Bounded(err error) error {
	if s, ok := status.FromError(err); ok {
		return status.Error(s.Code(), bounds.Text(s.Message(), bounds.ErrorText))
	}
	return bounds.Error(err, bounds.ErrorText)
}

// NewStream is like Invoke for a method that streams. The stream ends with ctx, which has to end, and the caller keeps the Channel until then.
func (c *Channel) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string) (grpc.ClientStream, error) {
	ctx, _, err := c.call(ctx)
	if err != nil {
		return nil, err
	}
	return c.connection.NewStream(ctx, desc, method)
}

// Ended returns the status of an RPC with the context ctx that has ended, nil of one that has not. A service may notice a deadline before the
// context does.
func Ended(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return status.FromContextError(context.DeadlineExceeded).Err()
	}
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return nil
}

// call returns the context of a call for an RPC with the context ctx, with which it ends, and a function that ends it before.
func (c *Channel) call(ctx context.Context) (context.Context, context.CancelFunc, error) {
	depth, _ := ctx.Value(depthKey{}).(int)
	if depth == maxDepth {
		return nil, nil, status.Errorf(codes.FailedPrecondition, "the call is for a call, %d deep: the channel to %s has a filter that calls it", maxDepth, c.target)
	}
	ctx = metadata.NewOutgoingContext(context.WithValue(ctx, depthKey{}, depth+1), c.metadata)
	if c.timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, c.timeout)
		return limited, cancel, nil
	}
	return ctx, func() {}, nil
}
