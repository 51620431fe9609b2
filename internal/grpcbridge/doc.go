// Package grpcbridge joins a channel's resolver to the channel's RPCs.
//
// gRPC-Go lets only its own packages choose a route per RPC: the hook is in an
// internal package. An interceptor can do all that the hook does, but an
// interceptor is given a *grpc.ClientConn and a resolver a
// resolver.ClientConn, and public API leads from neither to the other. This
// package is the one place that depends on gRPC's internals. It
//
//   - installs the interceptors on every channel with a target of ours
//     (hook.go), or hands them out for use as dial options;
//   - registers resolvers, and reports when another package takes their scheme
//     (scheme.go);
//   - registers metrics that gRPC-Go's own packages may register as well
//     (metrics.go);
//   - adds a service to those of gRPC's admin.Register (admin.go);
//   - gives SubConns credentials of their own (credentials.go);
//   - calls the callbacks for telemetry labels in the context of an RPC (labels.go);
//   - labels the metrics of connections (subchannel.go), and gives gRPC's policies
//     the locality that their metrics are labelled with (locality.go);
//   - finds the *grpc.ClientConn behind a resolver.ClientConn (walk.go);
//   - keeps, while a resolver lives, the Channel in which the two meet
//     (channel.go), and lets RPCs wait there for the first configuration
//     (interceptor.go).
//
// It is not for routing. What becomes of an RPC is the business of the Runner
// that the resolver publishes.
package grpcbridge
